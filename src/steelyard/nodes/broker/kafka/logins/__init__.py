"""Logins of Kafka clients, and the users that they log in as."""
