"""Pending calls: requests that a node has sent and that have no answer yet, one module for each dialect."""
