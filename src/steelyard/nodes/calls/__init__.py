"""Pending calls: requests that a node has sent and that have no response yet.

A module per dialect.
"""
