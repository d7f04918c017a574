"""A client's member of a Kafka consumer group: joining, heartbeats and assignments."""
