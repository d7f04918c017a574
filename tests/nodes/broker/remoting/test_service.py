"""What becomes of requests that cannot be read."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import Rig

from steelyard.wire.remoting.codes import RequestCode, ResponseCode


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.PULL_MESSAGE,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
    ],
)
@pytest.mark.parametrize("oneway", [False, True])
def test_a_request_that_cannot_be_read_is_logged(rig: Rig, code: int, oneway: bool) -> None:
    """Also if its handler works in steps: none of it runs before the first."""
    link = rig.connect()
    opaque = rig.post(link, code, body=b"?", oneway=oneway)
    reply = rig.reply_to(link, opaque)
    assert (None if reply is None else reply.code) == (
        None if oneway else ResponseCode.SYSTEM_ERROR
    )
    (tell,) = rig.told
    assert tell.level == "WARNING"
    assert tell.text.startswith(f"request {int(code)} of 10.0.0.1:5000 was refused: ")
