from __future__ import annotations

from steelyard.produce import verdict
from steelyard.types import SendStatus


def test_codes_of_both_versions() -> None:
    """retryResponseCodes of 4.9.8 and 5.3.3, the cases of processSendResponse."""
    assert {
        "4.x": {17, 14, 1, 16, 204, 205},
        "5.x": {17, 14, 1, 2, 16, 204, 205, 1500},
    } == verdict.RETRIED
    assert verdict.STORED == {
        0: SendStatus.SEND_OK,
        10: SendStatus.FLUSH_DISK_TIMEOUT,
        12: SendStatus.FLUSH_SLAVE_TIMEOUT,
        11: SendStatus.SLAVE_NOT_AVAILABLE,
    }
