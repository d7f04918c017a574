"""Kafka's clients in the simulator: members of groups, producers, and what they owe each other."""
