"""What happened in the consumer groups of Apache clusters, from the records that these keep."""
