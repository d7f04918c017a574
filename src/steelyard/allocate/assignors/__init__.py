"""How the members of a Kafka group share its partitions: the leader of a generation computes for all.

`plan` has the types, `registry` the assignors by their names on the wire.
"""
