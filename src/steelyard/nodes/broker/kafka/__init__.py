"""The broker's Kafka listener: what Kafka clients ask of a broker, served over the same store as RocketMQ's requests."""

KAFKA_TIMER = "kafka"
