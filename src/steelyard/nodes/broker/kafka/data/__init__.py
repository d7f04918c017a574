"""Requests that write and read records."""
