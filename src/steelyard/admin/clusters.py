"""mqadmin's cluster commands, from clusterList to addWritePerm.

Source: tools/command/{cluster,broker,namesrv}/*.java of 4.9.8.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import add_asking_command, add_where_options
from steelyard.admin.printing import fixed, shown
from steelyard.errors import BrokerError, RemotingError, RouteError

if TYPE_CHECKING:
    from steelyard.admin.reaching import PatientAdmin
    from steelyard.client.aio.admin import Admin
    from steelyard.wire.remoting.bodies import ClusterInfo

ClusterRow = tuple[str, str, int, str]
"""Cluster name, broker name, broker id, address."""


NO_BROKER = "no broker is registered with the nameserver"
"""What is said instead of an empty table."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    listing = add_asking_command(
        commands, "clusterList", cluster_list, "List clusters and brokers", watched=True
    )
    listing.add_argument("-m", "--moreStats", action="store_true", help="message totals")

    status = add_asking_command(
        commands, "brokerStatus", broker_status, "Fetch a broker's figures", watched=True
    )
    add_where_options(status, "figures of")

    config = add_asking_command(
        commands, "getBrokerConfig", broker_config, "Get the settings of brokers"
    )
    add_where_options(config, "settings of")

    for name, changing, text in (
        ("wipeWritePerm", wipe_write_permission, "Remove write permission from a broker's topics"),
        ("addWritePerm", add_write_permission, "Restore write permission for a broker's topics"),
    ):
        parser = add_asking_command(commands, name, changing, text)
        parser.add_argument("-b", "--brokerName", required=True, help="the broker's name")


async def cluster_list(admin: PatientAdmin, options: argparse.Namespace) -> CommandOutcome:
    rows = cluster_rows(await admin.clusters())
    if not rows:
        raise RouteError(NO_BROKER)
    figures = [await _figures(admin, address) for _, _, _, address in rows]
    if options.moreStats:
        text = totals_row(
            "#Cluster Name",
            "#Broker Name",
            "#InTotalYest",
            "#OutTotalYest",
            "#InTotalToday",
            "#OutTotalToday",
        )
        text += "".join(totals_line(row, table) for row, table in zip(rows, figures, strict=True))
        return CommandOutcome(text, _cluster_document(rows, figures))
    now = time.time_ns() // 1_000_000
    text = cluster_row(
        "#Cluster Name",
        "#Broker Name",
        "#BID",
        "#Addr",
        "#Version",
        "#InTPS(LOAD)",
        "#OutTPS(LOAD)",
        "#PCWait(ms)",
        "#Hour",
        "#SPACE",
    )
    text += "".join(cluster_line(row, table, now) for row, table in zip(rows, figures, strict=True))
    return CommandOutcome(text, _cluster_document(rows, figures))


def _cluster_document(rows: list[ClusterRow], figures: list[dict[str, str]]) -> dict[str, object]:
    """`figures`: by the broker's own names, as in brokerStatus; empty if it does not tell them."""
    return {
        "brokers": [
            {
                "cluster": cluster,
                "broker_name": name,
                "broker_id": broker_id,
                "address": address,
                "figures": table,
            }
            for (cluster, name, broker_id, address), table in zip(rows, figures, strict=True)
        ]
    }


def cluster_rows(info: ClusterInfo) -> list[ClusterRow]:
    """Return one row per replica, with brokers sorted by name within their cluster."""
    return [
        (cluster, name, broker_id, address)
        for cluster, names in info.cluster_addr_table.items()
        for name in sorted(names)
        if name in info.broker_addr_table
        for broker_id, address in info.broker_addr_table[name].broker_addrs.items()
    ]


async def _figures(admin: PatientAdmin, address: str) -> dict[str, str]:
    """Return a broker's figures.

    Empty if it does not tell them, so that the others are still shown.
    """
    try:
        return await admin.runtime(address)
    except BrokerError as error:
        admin.refusals[address] = error
    except RemotingError:
        pass  # the administrator remembers it
    return {}


def cluster_row(*cells: object) -> str:
    return "{:<16}  {:<22}  {:<4}  {:<22} {:<16} {:>19} {:>19} {:>10} {:>5} {:>6}\n".format(
        *shown(cells)
    )


def cluster_line(row: ClusterRow, table: Mapping[str, str], now: int) -> str:
    cluster, name, broker_id, address = row
    earliest = table.get("earliestMessageTimeStamp", "")
    hours = (now - int(earliest)) / 3_600_000 if earliest else 0.0
    return cluster_row(
        cluster,
        name,
        broker_id,
        address,
        table.get("brokerVersionDesc", ""),
        _load(table, "putTps", "send"),
        _load(table, "getTransferedTps", "pull"),
        table.get("pageCacheLockTimeMills", ""),
        fixed(hours, 2),
        fixed(float(table.get("commitLogDiskRatio") or 0), 4),
    )


def _load(table: Mapping[str, str], rate: str, pool: str) -> str:
    """Format `rate(queue,wait)`: the rate of the last 10 s, and the queue of the thread pool."""
    first = (table.get(rate) or "0").split(" ")[0]
    size = table.get(f"{pool}ThreadPoolQueueSize", "")
    wait = table.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", "")
    return f"{fixed(float(first), 2):>9}({size},{wait}ms)"


def totals_row(*cells: object) -> str:
    return "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}\n".format(*cells)


def totals_line(row: ClusterRow, table: Mapping[str, str]) -> str:
    def between(kind: str, later: str, earlier: str) -> int:
        return int(table.get(f"{kind}{later}", 0)) - int(table.get(f"{kind}{earlier}", 0))

    return totals_row(
        row[0],
        row[1],
        between("msgPutTotal", "TodayMorning", "YesterdayMorning"),
        between("msgGetTotal", "TodayMorning", "YesterdayMorning"),
        between("msgPutTotal", "TodayNow", "TodayMorning"),
        between("msgGetTotal", "TodayNow", "TodayMorning"),
    )


async def broker_status(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    found = await _of_each(admin, options, admin.runtime)
    one = bool(options.brokerAddr)
    text = "".join(status_lines(None if one else at, table) for at, table in found.items())
    rows = [{"address": address, "figures": table} for address, table in found.items()]
    return CommandOutcome(text, {"brokers": rows})


async def _of_each(
    admin: Admin,
    options: argparse.Namespace,
    ask: Callable[[str], Awaitable[dict[str, str]]],
) -> dict[str, dict[str, str]]:
    """Ask the broker of -b, or the masters of -c; return what those that answered said."""
    if options.brokerAddr:
        address = options.brokerAddr.strip()
        return {address: await ask(address)}
    found = {}
    for address in await admin.masters(options.clusterName.strip()):
        with suppress(RemotingError):
            found[address] = await ask(address)
    return found


def status_lines(address: str | None, table: Mapping[str, str]) -> str:
    """Format sorted figures; for a whole cluster each line begins with the address."""
    table = shown(dict(table))
    begin = "" if address is None else f"{address:<24} "
    return "".join(f"{begin}{name:<32}: {table[name]}\n" for name in sorted(table))


# -- getBrokerConfig, wipeWritePerm, addWritePerm --------------------------------------------------


async def broker_config(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    found = await _of_each(admin, options, admin.broker_config)
    heading = "" if options.brokerAddr else "Master: "
    text = "".join(config_lines(heading + at, settings) for at, settings in found.items())
    rows = [{"address": address, "settings": settings} for address, settings in found.items()]
    return CommandOutcome(text, {"brokers": rows})


def config_lines(heading: str, settings: Mapping[str, str]) -> str:
    settings = shown(dict(settings))
    lines = (f"{name:<50}=  {settings[name]}\n" for name in sorted(settings))
    return f"============{heading}============\n" + "".join(lines) + "\n"


async def wipe_write_permission(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    name = await _registered(admin, options)
    return _changed("wipe", name, await admin.wipe_write_permission(name))


async def add_write_permission(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    name = await _registered(admin, options)
    return _changed("add", name, await admin.add_write_permission(name))


async def _registered(admin: Admin, options: argparse.Namespace) -> str:
    """Return the name of -b. Raises RouteError if no broker of this name is registered."""
    name: str = options.brokerName.strip()
    known = sorted((await admin.clusters()).broker_addr_table)
    if name not in known:
        raise RouteError(
            f"the nameserver knows no broker {name}; it knows: {', '.join(known) or 'none'}"
        )
    return name


def _changed(verb: str, broker_name: str, counts: Mapping[str, int]) -> CommandOutcome:
    text = "".join(
        f"{verb} write perm of broker[{broker_name}] in name server[{address}] OK, {count}\n"
        for address, count in counts.items()
    )
    rows = [{"address": address, "topics": count} for address, count in counts.items()]
    return CommandOutcome(text, {"broker_name": broker_name, "nameservers": rows})
