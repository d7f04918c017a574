"""The main job: 336,776 flights through two brokers and a consumer group that changes all the time.

At its end a group of unmodified Kafka consumers reads the same flights, and a member joins it.

`flights` reads the input, `publisher` and `member` are programs of their own that use the public
API only, `kafka_member` is one that uses confluent-kafka; `cluster` starts and kills them and the
servers, `story` says what happens in which order, `kafka_group` measures what the Kafka group's
rebalance cost, `__main__` prints it all, checks the outcome and runs the Spark jobs.
"""
