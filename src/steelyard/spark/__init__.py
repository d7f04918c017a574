"""Topics as Spark DataFrames, and tables of what each rebalance cost.

`spark.read.format("rocketmq")` reads the messages of topics as rows: its options are those of `steelyard.spark.options`,
its rows are described in `steelyard.spark.source`. `steelyard pipeline ledger` makes the tables.
"""
