"""Kafka's group coordinator: who is in a group, which generation counts, what was committed."""
