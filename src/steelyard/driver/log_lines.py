"""Lines of a log: text for people, or JSON for programs. Loads little, for `steelyard up`.

A line of JSON is one object:

    time       ISO 8601 in UTC, to the millisecond: 2026-11-25T17:20:05.123Z
    level      DEBUG, INFO, WARNING, ERROR or CRITICAL
    logger     steelyard.broker-a, asyncio, ...
    message    may contain line feeds
    server     the broker's name, `nameserver`, or `up`; not in lines from before it is known
    traceback  only if there is one
"""

from __future__ import annotations

import json
import time

TEXT, JSON = "text", "json"

FORMATS = (TEXT, JSON)


def json_line(
    seconds: float, level: str, logger: str, message: str, *, server: str = "", traceback: str = ""
) -> str:
    """Format one line, without the line feed. `seconds`: since 1970."""
    milliseconds = int(seconds * 1000)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    line = {
        "time": f"{moment}.{milliseconds % 1000:03}Z",
        "level": level,
        "logger": logger,
        "message": message,
    }
    line |= {"server": server} if server else {}
    line |= {"traceback": traceback} if traceback else {}
    return json.dumps(line)


def own_line(log_format: str, level: str, server: str, text: str) -> str:
    """Format a line that no logger writes: `steelyard: TEXT`, or JSON with the time now."""
    if log_format == TEXT:
        return f"steelyard: {text}"
    logger = f"steelyard.{server}" if server else "steelyard"
    return json_line(time.time(), level, logger, text, server=server)


def message_in(line: str) -> str:
    """Return the message of a line of either format; of text it is the line."""
    if line.startswith("{"):
        try:
            return str(json.loads(line)["message"])
        except (ValueError, LookupError, TypeError):
            pass
    return line
