"""What compaction leaves of a log: the last entry of each key, and what readers still need."""
