"""A Spark application on Kafka topics: spark.py JARS FOLDER BOOTSTRAP=TOPIC..., a fact a line for each. The topics have three partitions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from tests.peers.kafka.python import lines


def main() -> None:
    jars, folder, *places = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", 2)
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    for place in places:
        bootstrap, _, topic = place.rpartition("=")
        Application(spark, bootstrap, topic, Path(folder) / topic).run()
    spark.stop()


class Application:
    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark, self.topic, self.copy, self.folder = spark, topic, f"{topic}-copy", folder
        self.bootstrap = bootstrap

    def run(self) -> None:
        self.write(0, 1000)
        rows = self.read(self.topic)
        self.fact("rows", rows.count())
        self.fact("numbers", sorted(int(row.key) for row in rows.collect()) == [*range(1000)])
        self.fact("dense", self.is_dense(rows))
        first = json.dumps({self.topic: {"0": 10, "1": -2, "2": 4}})
        last = json.dumps({self.topic: {"0": 15, "1": 5, "2": 4}})
        part = self.read(self.topic, startingOffsets=first, endingOffsets=last).collect()
        self.fact("a part", sorted((row.partition, row.offset) for row in part))
        self.stream()
        self.fact("copied", self.read(self.copy).count())
        self.write(1000, 100)
        self.stream()
        self.fact("copied in all", self.read(self.copy).select("key").distinct().count())

    def fact(self, name: str, value: object) -> None:
        lines.emit("fact", topic=self.topic, name=name, value=value)

    def write(self, first: int, count: int) -> None:
        """A batch through the sink."""
        rows = self.spark.range(first, first + count)
        records = rows.selectExpr("cast(id as string) key", "concat('value ', id) value")
        sink = records.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        sink.option("topic", self.topic).save()

    def read(self, topic: str, **options: str) -> DataFrame:
        reader = self.spark.read.format("kafka").option("subscribe", topic).options(**options)
        frame = reader.option("kafka.bootstrap.servers", self.bootstrap).load()
        return frame.selectExpr("cast(key as string) key", "partition", "offset")

    @staticmethod
    def is_dense(rows: DataFrame) -> bool:
        """Each partition's offsets count from 0 on, and no partition is empty."""
        ends = rows.groupBy("partition").agg({"offset": "max", "key": "count"}).collect()
        return len(ends) == 3 and all(row["max(offset)"] + 1 == row["count(key)"] for row in ends)

    def stream(self) -> None:
        """From where the last run stopped to what there is now, in small batches, into the other topic."""
        source = self.spark.readStream.format("kafka").option("subscribePattern", f"{self.topic}$")
        source = source.option("kafka.bootstrap.servers", self.bootstrap)
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 400)
        sink = source.load().select("key", "value").writeStream.format("kafka")
        sink = sink.option("kafka.bootstrap.servers", self.bootstrap).option("topic", self.copy)
        sink = sink.option("checkpointLocation", str(self.folder)).trigger(availableNow=True)
        sink.start().awaitTermination()


if __name__ == "__main__":
    main()
