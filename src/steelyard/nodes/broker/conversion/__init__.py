"""Conversion of messages of one dialect for readers of the other, when they are read."""
