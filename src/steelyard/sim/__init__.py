"""The deterministic driver: the production nodes in virtual time, on a faulty network and disk.

The input is a seed, the output a digest of everything that happened; the same seed gives the same
digest in any process. `swarm` draws a cluster, a workload and faults from a seed, `scenario` reads
them from a file, `cluster` builds them, `checkers` verify the results.
"""
