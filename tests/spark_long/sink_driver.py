"""A streaming query from topic to topic, exactly once, in a process of its own, to be killed.

`python sink_driver.py CHECKPOINT SOURCE SINK`, the options of both as JSON. When a Python process of the query is
killed the query fails, and is started again in the same session, as by a supervisor.
"""

from __future__ import annotations

import json
import sys

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from steelyard.spark.session import session


def main() -> None:
    checkpoint, source, sink = sys.argv[1:]
    spark = session()
    while True:
        try:
            rows = spark.readStream.format("rocketmq").options(**json.loads(source)).load()
            # Other rows in each task whenever the batch is run, as Spark allows.
            shuffled = rows.select("body", "keys").repartition(3)
            writer = shuffled.writeStream.format("rocketmq").options(**json.loads(sink))
            writer.option("checkpointLocation", checkpoint).start().awaitTermination()
        except (PySparkException, Py4JError) as error:
            print(f"started again after: {str(error)[:2000]}", flush=True)


if __name__ == "__main__":
    main()
