"""Requests of RocketMQ clients and tools, put together in `service`."""
