"""Rows as messages: at least once, or in transactions that are committed together."""
