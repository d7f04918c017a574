"""How many examples a property test draws: many in `./dev proofs`, fewer in `./dev test`, which everybody waits for."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def load_profile() -> None:
    """Make the profiles known, and choose `steady`: pytest's option `--hypothesis-profile` names another one."""
    busy = [HealthCheck.too_slow]  # a busy machine is no failure
    settings.register_profile("steady", deadline=None, suppress_health_check=busy, max_examples=100)
    settings.register_profile("quick", settings.get_profile("steady"), max_examples=10)
    settings.load_profile("steady")


def examples(number: int) -> int:
    """Return how many of these examples are drawn with the profile: all (`steady`) or one of ten (`quick`)."""
    return max(1, number * settings().max_examples // 100)
