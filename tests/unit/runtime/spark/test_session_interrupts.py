import signal
from collections.abc import Iterator

import pytest

from dagster_ckpt.runtime.spark.session import own_interrupts


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_handler_set_within_is_gone_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with own_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_also_where_spark_does_not_start() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(OSError, match="no Java"):
        start_in_vain()
    assert signal.getsignal(signal.SIGINT) is before


def start_in_vain() -> None:
    with own_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise OSError("no Java")
