"""Kafka groups and transactions: the coordinators of a broker, and the group member of the client (`member`)."""
