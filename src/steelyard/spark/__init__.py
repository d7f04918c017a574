"""Topics as Spark DataFrames, and tables of what each rebalance cost.

`spark.read.format("rocketmq")` reads the messages of topics as rows:
`steelyard.spark.options.reading` describes its options, `steelyard.spark.source` its rows.
`steelyard pipeline ledger` writes the tables.
"""
