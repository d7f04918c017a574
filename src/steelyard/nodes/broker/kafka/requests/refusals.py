"""What is wrong with one part of a request: the error code of its answer, and why in words."""

from __future__ import annotations

from steelyard.wire.kafka.errors import ErrorCode


class RequestRefused(Exception):  # noqa: N818  # an outcome of one topic, not an error of the program
    """Raised and caught within one handler, where a topic of its request cannot have what is asked."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
