"""An interval join of any type, its input cut into any epochs and batches, against loops over lists."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators.joins import JoinType
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT
from tests.unit.operators.joined_streams import Batch, InDicts, InEngine, Joined, Row, Watermark, World, interval_join
from tests.worlds.event_times import ENDS_OF_INT64, is_out_of_range
from tests.worlds.examples import examples

TIMES = st.integers(0, 25) | st.none()
ROWS = st.tuples(st.sampled_from(["a", "b", None]), TIMES, st.integers(0, 1))
BATCHES = st.tuples(st.sampled_from([LEFT, RIGHT]), st.lists(ROWS, max_size=6))
EPOCHS = st.lists(st.lists(BATCHES, max_size=4), min_size=1, max_size=6)
BOUNDS = st.tuples(st.integers(-8, 8), st.integers(0, 8)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))
DELAYS = st.tuples(st.sampled_from([0, 3, 1000]), st.sampled_from([0, 5, 1000]))
TYPES = st.sampled_from(list(JoinType))
DRIFT = st.sampled_from([0, 4, 15])
"""How much later each epoch's times are than those of the epoch before."""

Epochs = Sequence[Sequence[Batch]]


def drifting(epochs: Epochs, drift: int) -> Epochs:
    return [
        [
            (number, [(k, None if time is None else time + drift * at, value) for k, time, value in rows])
            for number, rows in batches
        ]
        for at, batches in enumerate(epochs)
    ]


def watermarks_in(epochs: Epochs, delays: tuple[int, int], beyond: int) -> list[int | None]:
    """The watermark of the epoch before each, and of one more that lets everything out."""
    watermark = Watermark(delays)
    found: list[int | None] = []
    for batches in epochs:
        found.append(watermark.us)
        watermark.move(batches)
    return [*found, max((time for time in watermark.greatest_us if time is not None), default=0) + beyond]


def expected(
    epochs: Epochs, watermarks: Sequence[int | None], lower: int, upper: int, how: JoinType
) -> list[Counter[Row]]:
    """What comes out in each epoch."""
    came: tuple[list[tuple[int, Row]], list[tuple[int, Row]]] = ([], [])
    for epoch, batches in enumerate(epochs):
        for number, rows in batches:
            came[number].extend((epoch, row) for row in rows if not is_late(row, watermarks[epoch]))
    out: list[Counter[Row]] = [Counter() for _ in watermarks]
    for mine, row in came[LEFT]:
        partners = [(max(mine, theirs), other) for theirs, other in came[RIGHT] if match(row, other, lower, upper)]
        if how.gives_pairs:
            for epoch, other in partners:
                out[epoch][*row, *other[1:]] += 1
        elif how is JoinType.SEMI and partners:
            out[min(epoch for epoch, _ in partners)][row] += 1
        if not partners and how.keeps_unmatched(LEFT):
            nothing = (None, None) if how.gives_pairs else ()
            out[due(row, mine, upper, watermarks)][*row, *nothing] += 1
    for mine, row in came[RIGHT]:
        if how.keeps_unmatched(RIGHT) and not any(match(other, row, lower, upper) for _, other in came[LEFT]):
            out[due(row, mine, -lower, watermarks)][row[0], None, None, *row[1:]] += 1
    return out


def is_late(row: Row, watermark: int | None) -> bool:
    return row[1] is not None and (is_out_of_range(row[1]) or (watermark is not None and row[1] < watermark))


def match(row: Row, other: Row, lower: int, upper: int) -> bool:
    if None in (row[0], row[1], other[0], other[1]):
        return False
    return bool(row[0] == other[0] and row[1] + lower <= other[1] <= row[1] + upper)


def due(row: Row, epoch: int, ahead: int, watermarks: Sequence[int | None]) -> int:
    """The first epoch, from its own on, in which every row that would match it is late."""
    if row[0] is None or row[1] is None:
        return epoch
    return next(
        at
        for at, watermark in enumerate(watermarks)
        if at >= epoch and watermark is not None and row[1] + ahead < watermark
    )


def agree(stream: Joined, epochs: Epochs, watermarks: Sequence[int | None], oracle: list[Counter[Row]]) -> None:
    for batches, watermark, wanted in zip([*epochs, []], watermarks, oracle, strict=True):
        found = Counter(stream.epoch(*batches, watermark_us=watermark))
        assert found == wanted
        late = [(number, row) for number, rows in batches for row in rows if is_late(row, watermark)]
        assert stream.late == late


@examples(60, 24)
@given(
    EPOCHS,
    BOUNDS,
    TYPES,
    DELAYS,
    DRIFT,
    st.sampled_from([1, 2, 1000]),
    st.sampled_from([1, 1 << 10, 1 << 20]),
    st.sampled_from([2, 1000]),
)
def test_each_epoch_matches_plain_python(
    cut: Epochs,
    bounds: tuple[int, int],
    how: JoinType,
    delays: tuple[int, int],
    drift: int,
    distinct: int,
    memory_bytes: int,
    piece: int,
) -> None:
    operator = interval_join(*bounds, how)
    epochs = drifting(cut, drift)
    watermarks = watermarks_in(epochs, delays, operator.interval.horizon_us)
    world = InDicts(operator, piece)
    stream = Joined(operator, world, distinct, memory_bytes)
    agree(stream, epochs, watermarks, expected(epochs, watermarks, *bounds, how))
    assert set(world.held().values()) <= {0}, "all state has expired"


FAR_ROWS = st.tuples(st.sampled_from(["a", None]), ENDS_OF_INT64 | st.none(), st.integers(0, 1))
FAR_EPOCHS = st.lists(
    st.lists(st.tuples(st.sampled_from([LEFT, RIGHT]), st.lists(FAR_ROWS, max_size=6)), max_size=4),
    min_size=1,
    max_size=4,
)


@examples(60, 24)
@given(
    FAR_EPOCHS,
    BOUNDS | st.sampled_from([(-(1 << 60), 1 << 60), (1 << 60, 1 << 60), (-(1 << 60), 0), (-3, 1 << 60)]),
    TYPES,
    DELAYS | st.just((1 << 62, 0)),
    st.sampled_from([1, 1000]),
)
def test_rows_near_the_ends_of_64_bits_are_late_or_match_what_they_should(
    epochs: Epochs, bounds: tuple[int, int], how: JoinType, delays: tuple[int, int], distinct: int
) -> None:
    operator = interval_join(*bounds, how)
    watermarks = watermarks_in(epochs, delays, operator.interval.horizon_us)
    world = InDicts(operator)
    agree(Joined(operator, world, distinct), epochs, watermarks, expected(epochs, watermarks, *bounds, how))
    assert set(world.held().values()) <= {0}, "everything has come out"


@examples(30, 12)
@given(EPOCHS, BOUNDS, TYPES, DELAYS, DRIFT, st.sampled_from([1, 1000]), st.sampled_from([64, 1 << 10, 1 << 28]))
def test_so_does_the_real_engine(
    cut: Epochs,
    bounds: tuple[int, int],
    how: JoinType,
    delays: tuple[int, int],
    drift: int,
    distinct: int,
    memory_limit: int,
) -> None:
    operator = interval_join(*bounds, how)
    epochs = drifting(cut, drift)
    watermarks = watermarks_in(epochs, delays, operator.interval.horizon_us)
    world: World = InEngine(operator, memory_limit)
    stream = Joined(operator, world, distinct, memory_limit)
    agree(stream, epochs, watermarks, expected(epochs, watermarks, *bounds, how))


@examples(20, 8)
@given(st.lists(BATCHES, max_size=8), BOUNDS, TYPES, st.lists(st.integers(0, 8), max_size=4))
def test_where_nothing_is_late_the_cut_into_epochs_does_not_matter(
    batches: Sequence[Batch], bounds: tuple[int, int], how: JoinType, cuts: list[int]
) -> None:
    outcomes = []
    for edges in ([0, len(batches)], sorted([0, len(batches), *(min(cut, len(batches)) for cut in cuts)])):
        epochs = [batches[start:end] for start, end in pairwise(edges)]
        operator = interval_join(*bounds, how)
        watermarks = watermarks_in(epochs, (1000, 1000), operator.interval.horizon_us)
        stream = Joined(operator, InDicts(operator))
        results = [
            stream.epoch(*each, watermark_us=watermark)
            for each, watermark in zip([*epochs, []], watermarks, strict=True)
        ]
        outcomes.append(Counter(row for rows in results for row in rows))
    assert outcomes[0] == outcomes[1]
