"""Kafka groups and transactions: a broker's coordinators, and a client's `member`."""
