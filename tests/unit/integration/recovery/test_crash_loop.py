"""When two Dagster runs failed with the same error, and how often in a row they have."""

import pytest

from dagster_ckpt.integration.recovery.crash_loop import RunError, SameError, count

DECLINED = (
    "an epoch could not be completed; nothing of it was committed. Remove the cause and start again. "
    "reason={reason}, epoch={epoch}, shards={shards}, hosts={hosts}"
)


def declined(reason: str = "ValueError: not a carrier", **varied: object) -> RunError:
    given = {"epoch": 7, "shards": [0, 1], "hosts": ["alpha (task 3)"], **varied}
    return RunError("CheckpointDeclinedError", DECLINED.format(reason=reason, **given))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (declined(epoch=7), declined(epoch=19)),
        (declined(shards=[0, 1]), declined(shards=[5])),
        (declined(hosts=["alpha (task 3)"]), declined(hosts=["beta (task 4)", "gamma (task 5)"])),
        (
            RunError("OSError", "no space left: '/tmp/tmpabcdefgh/3-7-0-1.arrow'. pid=12, term=9, at 2013-01-05T12:00"),
            RunError(
                "OSError", "no space left: '/tmp/tmpzyxwvuts/4-9-1-1.arrow'. pid=99, term=10, at 2014-02-06T13:07"
            ),
        ),
        (
            RunError("KeyError", "run 0f2a-44 at 0x7f3a has no column delay"),
            RunError("KeyError", "run 1e90-17 at 0x7fff has no column delay"),
        ),
        (RunError("E", "one\n  two"), RunError("E", "one two")),
    ],
)
def test_an_error_is_the_same_wherever_and_whenever_it_strikes(one: RunError, other: RunError) -> None:
    assert one.mark == other.mark


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (declined("ValueError: not a carrier"), declined("ValueError: not an airport")),
        (RunError("KeyError", "delay"), RunError("ValueError", "delay")),
        (RunError("KeyError", "no column delay"), RunError("KeyError", "no column carrier")),
        (RunError("E", ""), RunError("E", "no word with a number")),
    ],
)
def test_another_error_is_another(one: RunError, other: RunError) -> None:
    assert one.mark != other.mark


def test_the_same_error_counts_up_and_another_resets_the_count() -> None:
    one, other = declined("ValueError: a"), declined("ValueError: b")
    first = count(None, one)
    second = count(first, one)
    assert (first, second) == (SameError(one.mark, 1), SameError(one.mark, 2))
    assert count(second, other) == SameError(other.mark, 1)


def test_a_run_that_died_without_an_error_neither_counts_nor_resets_the_count() -> None:
    before = SameError("E:1", 2)
    assert count(before, None) == before
    assert count(None, None) is None


def test_a_count_survives_in_a_tag_and_what_people_write_there_is_no_count() -> None:
    mark = declined().mark
    assert SameError.read(SameError(mark, 2).write()) == SameError(mark, 2)
    for tag in ("", "2", "two E:1", "-1 E:1", " E:1", "1.5 E:1"):
        assert SameError.read(tag) is None


@pytest.mark.timeout(60)  # a second is enough; what is quadratic takes days
def test_a_mark_is_short_and_soon_made_whatever_the_message() -> None:
    for endless in ("x" * 10**7, "x " * 10**6, "1" * 10**7, "tmp" * 10**6, "hosts=[" * 10**6, "host=" * 10**6):
        assert len(RunError("E", endless).mark) < 40
