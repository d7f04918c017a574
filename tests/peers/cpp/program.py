"""The C++ client, by its Python binding. Prints JSON lines; started by `client.py`.

program.py FOLDER produce NAMESERVER TOPIC FIRST COUNT     sends FIRST ... by turns over the queues, half of them one by one
program.py FOLDER shard NAMESERVER TOPIC COUNT SHARDS      sends each shard's numbers to one queue, in order
program.py FOLDER concurrent|orderly NAMESERVER TOPIC GROUP INSTANCE
                                                           consumes until standard input ends; fails each message with
                                                           the property `fail` the first time
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

sys.path.insert(0, sys.argv[1])

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore[import-not-found]

_speaking = threading.Lock()


def say(**event: Any) -> None:
    with _speaking:  # listeners have threads of their own
        print(json.dumps(event), flush=True)


def message(topic: str, number: int, shard: int = 0) -> Any:
    found = Message(topic)
    found.set_keys(f"key{number}")
    found.set_tags("even" if number % 2 == 0 else "odd")
    found.set_property("number", str(number))
    found.set_property("shard", str(shard))
    found.set_body(f"body {number} \N{EURO SIGN}")
    return found


def produce(nameserver: str, topic: str, first: str, count: str) -> None:
    producer = Producer(f"{topic}pg")
    producer.set_namesrv_addr(nameserver)
    producer.set_timeout(20_000)  # the 3 s that it has otherwise are few on a busy machine
    producer.start()
    for number in range(int(first), int(first) + int(count)):
        sent = producer.send_sync(message(topic, number))
        say(number=number, status=int(sent.status), id=sent.msg_id, offset=sent.offset)
    producer.shutdown()


def shard(nameserver: str, topic: str, count: str, shards: str) -> None:
    producer = Producer(f"{topic}pg")
    producer.set_namesrv_addr(nameserver)
    producer.set_timeout(20_000)  # the 3 s that it has otherwise are few on a busy machine
    producer.start()
    for number in range(int(count)):
        place = number % int(shards)
        sent = producer.send_orderly(message(topic, number, place), place)
        say(number=number, status=int(sent.status), id=sent.msg_id, offset=sent.offset)
    producer.shutdown()


def consume(kind: str, nameserver: str, topic: str, group: str, instance: str) -> None:
    consumer = PushConsumer(group, orderly=kind == "orderly")
    consumer.set_namesrv_addr(nameserver)
    consumer.set_instance_name(instance)

    def listen(view: Any) -> None:
        say(
            number=int(view.get_property("number")),
            shard=int(view.get_property("shard")),
            body=view.body.decode(),
            times=view.reconsume_times,
            queue=view.queue_id,
            offset=view.queue_offset,
        )
        if view.get_property("number") == b"0" and view.reconsume_times == 0 and kind != "orderly":
            raise ValueError("the first delivery of the first message fails")

    consumer.subscribe(topic, listen)
    consumer.start()
    say(started=True)
    sys.stdin.read()
    consumer.shutdown()
    say(stopped=True)


if __name__ == "__main__":
    mode, *rest = sys.argv[2:]
    if mode in ("concurrent", "orderly"):
        consume(mode, *rest)
    else:
        {"produce": produce, "shard": shard}[mode](*rest)
