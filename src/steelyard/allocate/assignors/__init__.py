"""How the members of a Kafka group share its partitions; a generation's leader computes for all.

`plan` has the types, `registry` the assignors by their names on the wire.
"""
