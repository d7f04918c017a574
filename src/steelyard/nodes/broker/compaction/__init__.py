"""Compaction of logs beside the load: which log is next, and one pass over it."""
