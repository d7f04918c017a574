"""The deterministic driver: the same nodes as in `driver`, in virtual time, on a faulty network and a faulty disk.

A seed goes in, a digest of everything that happened comes out; the same seed gives the same digest in
any process. `swarm` draws a cluster, a workload and faults from a seed, `scenario` reads them from a
file, `cluster` builds them, `checkers` know the truth.
"""
