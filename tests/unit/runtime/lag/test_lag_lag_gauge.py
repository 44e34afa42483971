"""The gauge: it measures at intervals, and nothing that fails in it reaches the stream."""

import threading

from dagster_ckpt.runtime.lag.lag import Lag, LagGauge, SourceLag

LAG = Lag(1, SourceLag(files=1))


def test_it_measures_at_once_and_then_at_intervals_until_it_is_ended() -> None:
    heard: list[Lag | None] = []
    thrice = threading.Event()

    def on_lag(lag: Lag | None) -> None:
        heard.append(lag)
        if len(heard) == 3:
            thrice.set()

    gauge = LagGauge("s", lambda: LAG, on_lag, 1)
    gauge.begin()
    assert thrice.wait(30)
    gauge.end()
    count = len(heard)
    assert set(heard) == {LAG}
    gauge.measure()
    assert len(heard) == count


def test_a_failure_is_an_unknown_lag() -> None:
    heard: list[Lag | None] = []

    def fails() -> Lag:
        raise OSError("the folder does not answer")

    gauge = LagGauge("s", fails, heard.append, 1)
    assert not gauge.measure()
    assert heard == [None]
    gauge.end()
