"""Kafka producers, a reader of what they commit, and the rules for both."""
