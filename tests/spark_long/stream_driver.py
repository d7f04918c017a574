"""A streaming query in a process of its own, to be killed: `python stream_driver.py OUT CHECKPOINT '{"option": ...}'`."""

from __future__ import annotations

import json
import sys

from steelyard.spark.session import session


def main() -> None:
    out, checkpoint, options = sys.argv[1:]
    spark = session()
    reader = spark.readStream.format("rocketmq").options(**json.loads(options)).load()
    writer = reader.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="0 seconds").start(out)
    query.awaitTermination()


if __name__ == "__main__":
    main()
