"""The broker's Kafka listener, which serves Kafka clients from the same store as RocketMQ's."""

KAFKA_TIMER = "kafka"
