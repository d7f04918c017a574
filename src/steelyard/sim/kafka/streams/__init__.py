"""Threads of a Kafka Streams application (KIP-1071), and what their group owes."""
