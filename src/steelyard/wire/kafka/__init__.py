"""Kafka's wire protocol, sans I/O: `messages` what is said, `schema` how it becomes bytes, `frame` who says it, `records` batches."""
