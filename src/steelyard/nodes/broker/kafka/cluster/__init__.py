"""The cluster as Kafka clients see it: brokers, topics and partitions, and how brokers agree on them."""
