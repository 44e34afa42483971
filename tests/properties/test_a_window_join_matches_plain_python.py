"""A window join and an instant join of any type, cut into any epochs and batches, against loops over lists."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators.joins import JoinType
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping, Tumbling
from tests.unit.operators.joined_streams import Batch, InDicts, InEngine, Joined, Row, Watermark, World, window_join
from tests.worlds.event_times import ENDS_OF_INT64, is_out_of_range
from tests.worlds.examples import examples

TIMES = st.integers(-5, 25) | st.none()
ROWS = st.tuples(st.sampled_from(["a", "b", None]), TIMES, st.integers(0, 1))
BATCHES = st.tuples(st.sampled_from([LEFT, RIGHT]), st.lists(ROWS, max_size=6))
EPOCHS = st.lists(st.lists(BATCHES, max_size=4), min_size=1, max_size=5)
WINDOWS = st.sampled_from([None, Tumbling(1), Tumbling(7, 2), Tumbling(10), Hopping(10, 5), Hopping(7, 3, 1)])
DELAYS = st.tuples(st.sampled_from([0, 3, 1000]), st.sampled_from([0, 5, 1000]))
TYPES = st.sampled_from(list(JoinType))

Epochs = Sequence[Sequence[Batch]]


def windows_of(time: int, window: FixedWindow | None) -> list[tuple[int, int]]:
    if window is None:
        return [(time, time + 1)]
    step = window.slide_us if isinstance(window, Hopping) else window.size_us
    last = time - (time - window.offset_us) % step
    return [(start, start + window.size_us) for start in range(last, time - window.size_us, -step)]


def watermarks_in(epochs: Epochs, delays: tuple[int, int], beyond: int) -> list[int | None]:
    """The watermark of the epoch before each, and of one more that lets everything out."""
    watermark = Watermark(delays)
    found: list[int | None] = []
    for batches in epochs:
        found.append(watermark.us)
        watermark.move(batches)
    return [*found, max((time for time in watermark.greatest_us if time is not None), default=0) + beyond]


def open_windows_of(time: int, window: FixedWindow | None, watermark: int | None) -> list[tuple[int, int]]:
    if is_out_of_range(time):
        return []
    return [each for each in windows_of(time, window) if watermark is None or each[1] > watermark]


def is_late(row: Row, window: FixedWindow | None, watermark: int | None) -> bool:
    return row[1] is not None and not open_windows_of(row[1], window, watermark)


def expected(
    epochs: Epochs, watermarks: Sequence[int | None], window: FixedWindow | None, how: JoinType
) -> list[Counter[Row]]:
    """What comes out in each epoch."""
    out: list[Counter[Row]] = [Counter() for _ in watermarks]
    members: dict[tuple[int, int], tuple[list[Row], list[Row]]] = {}
    for epoch, batches in enumerate(epochs):
        for number, rows in batches:
            for row in rows:
                if row[1] is None:
                    if how.keeps_unmatched(number):
                        out[epoch][shown(number, row, (None, None), window, how)] += 1
                else:
                    for each in open_windows_of(row[1], window, watermarks[epoch]):
                        members.setdefault(each, ([], []))[number].append(row)
    for each, (lefts, rights) in members.items():
        closed = next(at for at, watermark in enumerate(watermarks) if watermark is not None and watermark >= each[1])
        out[closed].update(joined(lefts, rights, each, window, how))
    return out


def joined(
    lefts: list[Row], rights: list[Row], bounds: tuple[int, int], window: FixedWindow | None, how: JoinType
) -> Counter[Row]:
    """The result of one window."""
    out: Counter[Row] = Counter()
    for row in lefts:
        partners = [other for other in rights if row[0] is not None and row[0] == other[0]]
        if how.gives_pairs:
            for other in partners:
                out[*shown(LEFT, row, bounds, window, how)[:-2], *other[1:]] += 1
        if (partners and how is JoinType.SEMI) or (not partners and how.keeps_unmatched(LEFT)):
            out[shown(LEFT, row, bounds, window, how)] += 1
    for row in rights:
        if how.keeps_unmatched(RIGHT) and not any(row[0] is not None and row[0] == other[0] for other in lefts):
            out[shown(RIGHT, row, bounds, window, how)] += 1
    return out


def shown(
    number: int, row: Row, bounds: tuple[int | None, int | None], window: FixedWindow | None, how: JoinType
) -> Row:
    """A row by itself, as the output has it."""
    mine, nothing = row[1:], (None, None) if how.gives_pairs else ()
    values = (*mine, *nothing) if number == LEFT else (*nothing, *mine)
    return (row[0], *(bounds if window else ()), *values)


def agree(
    stream: Joined,
    epochs: Epochs,
    watermarks: Sequence[int | None],
    window: FixedWindow | None,
    oracle: list[Counter[Row]],
) -> None:
    for batches, watermark, wanted in zip([*epochs, []], watermarks, oracle, strict=True):
        found = Counter(stream.epoch(*batches, watermark_us=watermark))
        assert found == wanted
        late = [(number, row) for number, rows in batches for row in rows if is_late(row, window, watermark)]
        assert stream.late == late


@examples(50, 20)
@given(EPOCHS, WINDOWS, TYPES, DELAYS, st.sampled_from([1, 2, 1000]), st.sampled_from([1, 1 << 10, 1 << 20]))
def test_each_epoch_matches_plain_python(
    epochs: Epochs,
    window: FixedWindow | None,
    how: JoinType,
    delays: tuple[int, int],
    distinct: int,
    memory_bytes: int,
) -> None:
    operator = window_join(window, how)
    watermarks = watermarks_in(epochs, delays, operator.horizon_us)
    world = InDicts(operator)
    stream = Joined(operator, world, distinct, memory_bytes)
    agree(stream, epochs, watermarks, window, expected(epochs, watermarks, window, how))
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
    WINDOWS | st.sampled_from([Tumbling(1 << 60, 99), Hopping(1 << 60, 1 << 58)]),
    TYPES,
    DELAYS | st.just((1 << 62, 0)),
    st.sampled_from([1, 1000]),
)
def test_rows_near_the_ends_of_64_bits_are_late_or_in_their_own_windows(
    epochs: Epochs, window: FixedWindow | None, how: JoinType, delays: tuple[int, int], distinct: int
) -> None:
    operator = window_join(window, how)
    watermarks = watermarks_in(epochs, delays, operator.horizon_us)
    world = InDicts(operator)
    stream = Joined(operator, world, distinct)
    agree(stream, epochs, watermarks, window, expected(epochs, watermarks, window, how))
    assert set(world.held().values()) <= {0}, "everything has come out"


@examples(25, 10)
@given(EPOCHS, WINDOWS, TYPES, DELAYS, st.sampled_from([1, 1000]), st.sampled_from([64, 1 << 10, 1 << 28]))
def test_so_does_the_real_engine(
    epochs: Epochs,
    window: FixedWindow | None,
    how: JoinType,
    delays: tuple[int, int],
    distinct: int,
    memory_limit: int,
) -> None:
    operator = window_join(window, how)
    watermarks = watermarks_in(epochs, delays, operator.horizon_us)
    world: World = InEngine(operator, memory_limit)
    stream = Joined(operator, world, distinct, memory_limit)
    agree(stream, epochs, watermarks, window, expected(epochs, watermarks, window, how))
