"""mqadmin's commands that measure how long sends take: sendMsgStatus, checkMsgSendRT, clusterRT.

The first send also connects, so averages leave it out, as mqadmin's do.
Source: tools/command/broker/SendMsgStatusCommand.java, tools/command/cluster/
CLusterSendMsgRTCommand.java, tools/command/message/CheckMsgSendRTCommand.java of 4.9.8,
SendResult.toString.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from steelyard.admin import exits, names
from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import add_asking_command, given, interval, with_credentials
from steelyard.admin.clusters import NO_BROKER
from steelyard.admin.printing import date_seconds, fixed, java_fields, shown
from steelyard.errors import BrokerError, ConfigError, RemotingError, RouteError

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.client.aio.producer import Producer
    from steelyard.types import MessageQueue, SendResult

AMOUNT_MAX = 100_000
SIZE_MAX = 4 * 1024 * 1024
"""Largest body that brokers take unless they are told otherwise (maxMessageSize)."""

STATUS_GROUP, TIMES_GROUP = "PID_SMSC", "STEELYARD_SEND_TIMES"
"""Producer groups; mqadmin's of the second kind is a number that is new each time."""

WARM_UP_BYTES = 16
FILLING = b"hello jodie"
"""What mqadmin's bodies consist of."""


class SendTime(NamedTuple):
    """How long a send to a queue took; `error`: why it failed, "" if it did not."""

    broker_name: str
    queue_id: int
    ms: float
    error: str = ""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    status = add_asking_command(
        commands, "sendMsgStatus", send_status, "Send messages to a broker and show the results"
    )
    status.add_argument("-b", "--brokerName", required=True, help="the broker's name")
    status.add_argument(
        "-s", "--messageSize", type=int, default=128, help="bytes of a body; default: %(default)s"
    )
    status.add_argument(
        "-c", "--count", type=int, default=50, help="number of messages; default: %(default)s"
    )

    check = add_asking_command(
        commands,
        "checkMsgSendRT",
        check_send_times,
        "Send messages to the queues of a topic in turn and show how long each took",
    )
    check.add_argument("-t", "--topic", required=True, type=names.written_topic, help="topic name")
    _add_amount_options(check)

    cluster = add_asking_command(
        commands,
        "clusterRT",
        cluster_send_times,
        "Send messages to each broker and show how long they took on average",
        watched=True,
    )
    _add_amount_options(cluster)
    cluster.add_argument("-c", "--cluster", help="only this cluster's brokers")
    cluster.add_argument(
        "-p",
        "--printLog",
        choices=("true", "false"),
        default="false",
        help="print time|room|cluster|broker|milliseconds",
    )
    cluster.add_argument(
        "-m", "--machineRoom", default="noname", help="with -p: name of the room; default: noname"
    )
    cluster.add_argument(
        "-i",
        "--interval",
        dest="watch",
        type=interval,
        metavar="SECONDS",
        help="repeat it every SECONDS until Ctrl-C, as --watch; default: once",
    )


def _add_amount_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-a", "--amount", type=int, default=100, help="number of messages; default: %(default)s"
    )
    parser.add_argument(
        "-s", "--size", type=int, default=128, help="bytes of a body; default: %(default)s"
    )


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value}; it must be from {least} to {most}")


def _producer(group: str, options: argparse.Namespace) -> Producer:
    from steelyard.client.aio.producer import Producer
    from steelyard.config import ProducerConfig

    config = with_credentials(ProducerConfig())
    return Producer(group, options.nameservers, config=config, tls=options.tls)


# -- sendMsgStatus ---------------------------------------------------------------------------------


async def send_status(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    """Send to the topic that has the broker's name, which every broker has."""
    _check("messageSize", options.messageSize, 1, SIZE_MAX)
    _check("count", options.count, 1, AMOUNT_MAX)
    name = options.brokerName.strip()
    brokers = sorted((await admin.clusters()).broker_addr_table)
    if name not in brokers:
        known = ", ".join(brokers) or "none"
        raise RouteError(f"the nameserver knows no broker {name}; it knows: {known}")
    body = FILLING * -(-options.messageSize // len(FILLING))
    text, rows = "", []
    async with _producer(STATUS_GROUP, options) as producer:
        await producer.send(name, FILLING * -(-WARM_UP_BYTES // len(FILLING)))
        for _ in range(options.count):
            begun = time.perf_counter()
            result = await producer.send(name, body)
            ms = (time.perf_counter() - begun) * 1000
            text += f"rt={int(ms)}ms, SendResult={send_result_text(result)}\n"
            rows.append({"ms": ms, "result": result})
    return CommandOutcome(text, {"broker_name": name, "sends": rows})


def send_result_text(result: SendResult) -> str:
    """SendResult.toString."""
    queue = shown(result.queue)
    values = {
        "sendStatus": result.status.value,
        "msgId": result.message_id,
        "offsetMsgId": result.offset_message_id,
        "messageQueue": f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]",
        "queueOffset": result.queue_offset,
    }
    return f"SendResult [{java_fields(values)}]"


# -- checkMsgSendRT --------------------------------------------------------------------------------


async def check_send_times(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    _check_amounts(options)
    await admin.route(options.topic)  # mqadmin lets brokers make a topic that does not exist
    async with _producer(TIMES_GROUP, options) as producer:
        queues = await producer.queues(options.topic)
        if not queues:
            raise RouteError(f"topic {options.topic} has no queue to send to")
        times = await _times(producer, options.topic, options, queues)
    line = "{:<32}  {:<4}  {:<20}    {}\n"
    text = line.format("#Broker Name", "#QID", "#Send Result", "#RT")
    for one in times:
        ok = "false" if one.error else "true"
        text += line.format(shown(one.broker_name), one.queue_id, ok, int(one.ms))
    average = _average_ms(times)
    text += f"Avg RT: {fixed(average, 2)}\n"
    document = {"topic": options.topic, "average_ms": average, "sends": times}
    return CommandOutcome(text, document, _code(times))


def _check_amounts(options: argparse.Namespace) -> None:
    """Two messages are needed for an average without the first."""
    _check("amount", options.amount, 2, AMOUNT_MAX)
    _check("size", options.size, 1, SIZE_MAX)


async def _times(
    producer: Producer, topic: str, options: argparse.Namespace, queues: Sequence[MessageQueue] = ()
) -> list[SendTime]:
    """Send messages one after the other, to the queues in turn or where the producer chooses."""
    body = b"a" * options.size
    times: list[SendTime] = []
    for number in range(options.amount):
        queue = queues[number % len(queues)] if queues else None
        error = ""
        begun = time.perf_counter()
        try:
            queue = (await producer.send(topic, body, queue=queue)).queue
        except (BrokerError, RemotingError, RouteError) as failure:
            error = " ".join(str(failure).split())
        ms = (time.perf_counter() - begun) * 1000
        broker, queue_id = ("", -1) if queue is None else (queue.broker_name, queue.queue_id)
        times.append(SendTime(broker, queue_id, ms, error))
    return times


def _average_ms(times: Sequence[SendTime]) -> float:
    return sum(one.ms for one in times[1:]) / (len(times) - 1)


def _code(times: Sequence[SendTime]) -> int:
    return exits.FAILED if any(one.error for one in times) else exits.SUCCESS


# -- clusterRT -------------------------------------------------------------------------------------


async def cluster_send_times(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    """Send to the topics that have the brokers' names, which every broker has."""
    _check_amounts(options)
    cluster = given(options.cluster)
    if cluster is not None:
        await admin.masters(cluster)  # an unknown cluster is reported as such
    table = (await admin.clusters()).cluster_addr_table
    places = [
        (name, broker)
        for name in sorted(table)
        if cluster is None or name == cluster
        for broker in sorted(table[name])
    ]
    if not places:
        raise RouteError(NO_BROKER)
    as_log = options.printLog == "true"
    head = "{:<24}  {:<24}  {:<4}  {:<8}  {:<8}\n"
    line = "{:<24}  {:<24}  {:<8}  {:<16}  {:<16}\n"
    columns = ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
    text = "" if as_log else head.format(*columns)
    rows, code = [], exits.SUCCESS
    async with _producer(TIMES_GROUP, options) as producer:
        for name, broker in places:
            times = await _times(producer, broker, options)
            average, failed = _average_ms(times), sum(1 for one in times if one.error)
            code = max(code, _code(times))
            if as_log:
                now = date_seconds(time.time_ns() // 1_000_000)
                cells = (now, options.machineRoom, *shown((name, broker)), fixed(average, 0))
                text += "|".join(cells) + "\n"
            else:
                ended = (len(times) - failed, failed)
                text += line.format(*shown((name, broker)), fixed(average, 2), *ended)
            rows.append(
                {
                    "cluster": name,
                    "broker_name": broker,
                    "average_ms": average,
                    "succeeded": len(times) - failed,
                    "failed": failed,
                    "error": next((one.error for one in times if one.error), None),
                }
            )
    return CommandOutcome(text, {"brokers": rows}, code)
