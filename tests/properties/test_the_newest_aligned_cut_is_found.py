"""The newest aligned cut against trying all of them, over small histories of streams that read each other."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.aligned_cut import Cut, KnownEpochs, Line, NoCut, Unseen, newest_cut
from dagster_ckpt.protocol.manifest.manifest import Consumed

NAMES = ("a", "b", "c", "d")


def uuid_of(name: str) -> StreamUuid:
    return StreamUuid(name * 32)


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Line]:
    """Streams of which each may read those before it, in one way or two.

    What they have consumed in each never goes back, but may be gone.
    """
    lines: dict[str, Line] = {}
    for number, name in enumerate(NAMES[: draw(st.integers(1, 4))]):
        epochs = sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=5)))
        ways = st.sets(st.tuples(st.sampled_from(NAMES[:number] or NAMES), st.integers(0, 1)))
        reads = sorted(draw(ways)) if number else []
        consumed = {
            way: sorted(draw(st.lists(st.integers(0, 9), min_size=len(epochs), max_size=len(epochs)))) for way in reads
        }
        # Of a new stream the first epochs are of a table that is still being created; later ones, where another of its
        # upstreams had none before.
        creating = draw(st.sets(st.sampled_from(epochs))) if reads else set[int]()
        seen = {
            Epoch(epoch): KnownEpochs(
                tuple(Consumed(up, uuid_of(up), Epoch(consumed[up, way][at])) for up, way in reads),
                whole=epoch not in creating,
            )
            for at, epoch in enumerate(epochs)
        }
        lines[name] = Line(uuid_of(name), tuple(map(Epoch, epochs)), reads=bool(reads), seen=seen)
    return lines


def aligned(lines: Mapping[str, Line], epochs: Mapping[str, Epoch]) -> bool:
    shown = {name: lines[name].seen[epoch] for name, epoch in epochs.items()}
    return all(
        seen.whole and all(epochs[each.stream] == each.epoch for each in seen.consumed if each.stream in epochs)
        for seen in shown.values()
    )


def all_cuts(lines: Mapping[str, Line]) -> Iterator[dict[str, Epoch]]:
    for epochs in product(*(line.epochs for line in lines.values())):
        cut = dict(zip(lines, epochs, strict=True))
        if aligned(lines, cut):
            yield cut


def found(lines: Mapping[str, Line]) -> tuple[Cut | NoCut, int]:
    """The answer to who knows nothing but the newest epochs, and how often he had to look."""
    known = {name: replace(line, seen={line.epochs[-1]: line.seen[line.epochs[-1]]}) for name, line in lines.items()}
    for looks in range(100):
        match newest_cut(known):
            case Unseen(name, epoch):
                assert epoch not in known[name].seen
                more = {**known[name].seen, epoch: lines[name].seen[epoch]}
                known[name] = replace(known[name], seen=more)
            case answer:
                return answer, looks
    raise AssertionError("it never ends")


@given(histories(), st.data())
def test_it_is_the_one_that_none_is_newer_than(lines: dict[str, Line], data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(sorted(lines)), min_size=1))
    lines = {name: line for name, line in lines.items() if name in chosen}
    cuts = list(all_cuts(lines))
    answer, _ = found(lines)
    if not cuts:
        assert isinstance(answer, NoCut)
        return
    assert isinstance(answer, Cut), answer
    assert answer.epochs in cuts
    assert all(answer.epochs[name] >= epoch for cut in cuts for name, epoch in cut.items())
