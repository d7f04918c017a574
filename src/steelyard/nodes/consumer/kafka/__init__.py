"""The Kafka consumer: a client node that reads partitions, alone or as a member of a group."""
