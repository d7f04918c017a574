"""What becomes of a record of one dialect for readers of the other: for brokers, and for Spark."""
