"""The keys that verify clients' access tokens, which the broker's process reads for it."""

from __future__ import annotations

from steelyard.nodes.seam import Call
from steelyard.sasl.signed_tokens import TokenKeys


class TokenKeysChanged(Call[None], frozen=True):
    """These keys apply to logins from now on; answered with None."""

    keys: TokenKeys
