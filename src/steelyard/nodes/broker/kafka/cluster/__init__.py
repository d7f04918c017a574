"""The cluster as Kafka clients see it, and how its brokers agree on topics and partitions."""
