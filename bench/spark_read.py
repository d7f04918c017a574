"""How fast Spark reads a topic: rows per second into a noop sink on two cores.

`python spark_read.py NAMESERVER TOPIC TIMES` reads the whole topic, once to warm up and then TIMES times, and
prints a JSON line with the rows and the seconds of each. Java may use its second compiler, as for any long read.
"""

from __future__ import annotations

import json
import sys
import time

from steelyard.spark.session import session


def main(nameserver: str, topic: str, times: int) -> None:
    spark = session(optimize=True)
    reader = spark.read.format("rocketmq").option("nameservers", nameserver)
    frame = reader.option("topic", topic).load()
    rows = frame.count()
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - begun)
    print(json.dumps({"rows": rows, "seconds": seconds}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
