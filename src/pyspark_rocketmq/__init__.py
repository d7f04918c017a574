"""Entry point for `format("rocketmq")`: Spark imports `pyspark_*` and takes `DefaultSource`.

Nothing else belongs here: one such package that fails to import hides the formats of all others,
and the reason. If Steelyard cannot be imported, `load()` says why.
"""

from pyspark.sql.datasource import DataSource

try:
    from steelyard.spark.source import RocketMQDataSource
except ImportError as error:
    _cause = str(error)

    class _Unavailable(DataSource):
        """Raises the reason when it is used."""

        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(
                f"format rocketmq: Steelyard cannot be imported ({_cause}); pip install"
                " 'steelyard[spark]' for the Python of the driver"
            )

        @classmethod
        def name(cls) -> str:
            return "rocketmq"

    DefaultSource: type[DataSource] = _Unavailable
else:
    DefaultSource = RocketMQDataSource

__all__ = ["DefaultSource"]
