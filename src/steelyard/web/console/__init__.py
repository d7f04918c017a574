"""The console: a cluster's groups, rebalances, topics and messages, as JSON and in a browser."""
