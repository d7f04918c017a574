"""The refusal of one item of a request: the error code of its answer, and the reason in words."""

from __future__ import annotations

from steelyard.wire.kafka.errors import ErrorCode


class RequestRefused(Exception):  # noqa: N818  # an outcome for one item, no error of the program
    """Raised and caught within one handler, to refuse one item of its request."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
