"""Requests of consumer groups and their members, and what brokers tell each other of groups."""
