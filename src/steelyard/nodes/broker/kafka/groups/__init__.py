"""Requests of consumer groups and their members, and how brokers pass on what they know of groups."""
