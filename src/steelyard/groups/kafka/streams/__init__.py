"""The coordinator of Kafka Streams groups (KIP-1071)."""
