"""Requests about the cluster as a whole: its quorum, features, tokens, and clients' telemetry."""
