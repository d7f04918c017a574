"""Entry point for `format("rocketmq")`: Spark imports `pyspark_*` and takes `DefaultSource`.

Nothing else belongs here: one such package that fails to import hides the formats of all others.
"""

from steelyard.spark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
