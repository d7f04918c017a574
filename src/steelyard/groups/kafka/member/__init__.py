"""A member of a Kafka consumer group: when it joins, what it says, and what it does with what it is given."""
