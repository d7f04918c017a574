"""The intake of Kafka clients' requests: their order, versions, large ones, repeated names."""
