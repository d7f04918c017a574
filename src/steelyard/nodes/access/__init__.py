"""Access control of RocketMQ's clients, at brokers and nameservers."""
