"""Access control of Kafka clients: the rules, and what each request needs."""
