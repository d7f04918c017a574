"""Kafka groups: from `__consumer_offsets` and brokers' logs."""
