"""Requests of RocketMQ's clients and tools; `service` combines the modules."""
