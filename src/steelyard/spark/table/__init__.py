"""From a topic to a table: `steelyard pipeline sink` (docs/TOPIC_TO_TABLE.md).

    source -> payloads (rows, or a reason why not) -> files -> the log of a table

Spark writes Parquet files in all formats; a table is what its log says. `parquet_log`, `delta_log`
and `iceberg_log` add the files of a micro-batch together with its number, in one atomic step, so
that a micro-batch that is repeated after a crash is not added again.
"""
