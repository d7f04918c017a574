"""RocketMQ groups: from the logs of brokers and clients."""
