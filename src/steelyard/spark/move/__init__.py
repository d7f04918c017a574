"""`steelyard pipeline move`: topics and groups' offsets from one cluster to another.

`command` is the command line and `plan` what it will do. `queue_move` moves one queue and checks
it; `journal` is its record on the disk, with the `mapping` of offsets. `group_move` translates the
offsets of groups. `rocketmq` and `kafka` are the clusters of either dialect, as `contract` has it.
"""
