"""Requests about topics, their settings, and the brokers that lead their partitions."""
