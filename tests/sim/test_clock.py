from hypothesis import given
from hypothesis import strategies as st

from steelyard.sim.clock import DRIFT_PPM_MAX, EPOCH, Clock

clocks = st.builds(Clock, st.integers(-10_000, 10_000), st.integers(-DRIFT_PPM_MAX, DRIFT_PPM_MAX))
times = st.integers(EPOCH - 1_000_000, EPOCH + 100_000_000)


@given(clocks, times)
def test_true_time_is_the_first_moment_at_which_the_clock_shows_it(
    clock: Clock, shown: int
) -> None:
    true = clock.true_time(shown)
    assert clock.read(true) >= shown > clock.read(true - 1)


@given(clocks, times, st.integers(0, 1_000_000))
def test_a_clock_never_goes_back(clock: Clock, true: int, later_ms: int) -> None:
    assert clock.read(true + later_ms) >= clock.read(true)


def test_skew_and_drift_add_up() -> None:
    assert Clock(skew_ms=-40, drift_ppm=100).read(EPOCH + 1_000_000) == EPOCH + 1_000_060
