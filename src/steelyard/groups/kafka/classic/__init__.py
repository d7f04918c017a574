"""Classic groups: members join a generation, and their leader assigns the partitions."""
