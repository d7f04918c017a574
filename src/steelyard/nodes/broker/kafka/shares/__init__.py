"""Share partitions (KIP-932): who has which record of a partition, at the broker that leads it."""
