"""Requests about topics, their settings, and the leaders of their partitions."""
