"""How little must be looked at to find the epochs that belong together, and why there may be none."""

from dataclasses import replace

from dagster_ckpt.ids import Epoch, StreamUuid, Version
from dagster_ckpt.protocol.epochs.aligned_cut import (
    Cut,
    KnownEpochs,
    Line,
    NoCut,
    NoCutReason,
    known_epochs,
    newest_cut,
)
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition, consumption
from dagster_ckpt.protocol.manifest.manifest import (
    Consumed,
    InputSpec,
    Manifest,
    ManifestKind,
    SourceIdentity,
    SourcePosition,
)
from tests.properties.test_the_newest_aligned_cut_is_found import found, uuid_of
from tests.worlds.manifests import PIPELINE, ROWS, SOURCE, a_manifest


def reader(name: str, upstream: str, consumed: dict[int, int], *, creating: int = 0) -> Line:
    """A stream whose epochs have consumed these of its upstream's; of the first ones its table was being created."""
    seen = {
        Epoch(epoch): KnownEpochs((Consumed(upstream, uuid_of(upstream), Epoch(up)),), whole=at >= creating)
        for at, (epoch, up) in enumerate(consumed.items())
    }
    return Line(uuid_of(name), tuple(seen), reads=True, seen=seen)


def source(name: str, epochs: range) -> Line:
    return Line(uuid_of(name), tuple(map(Epoch, epochs)), seen={Epoch(epoch): KnownEpochs() for epoch in epochs})


def test_of_a_thousand_epochs_ten_are_looked_at() -> None:
    lines = {
        "a": source("a", range(1, 1_001)),
        "b": reader("b", "a", {each: each for each in range(1, 1_001)}),
        "c": reader("c", "a", {5: 7}),
    }
    cut, looks = found(lines)
    assert cut.epochs == {"a": 7, "b": 7, "c": 5}  # type: ignore[union-attr]
    assert looks <= 10


def test_nothing_but_the_newest_is_looked_at_where_they_agree() -> None:
    lines = {"a": source("a", range(1, 21)), "b": reader("b", "a", {each: each for each in range(1, 19)})}
    cut, looks = found(lines)
    assert (cut.epochs, looks) == ({"a": 18, "b": 18}, 0)  # type: ignore[union-attr]


def test_an_older_epoch_is_taken_where_a_later_one_is_still_being_created() -> None:
    """Another upstream of its had none before, and came as a snapshot in parts."""
    line = reader("b", "a", {3: 5, 4: 6, 5: 6})
    line = replace(line, seen={**line.seen, Epoch(5): replace(line.seen[Epoch(5)], whole=False)})
    answer, _ = found({"a": source("a", range(1, 9)), "b": line})
    assert answer == Cut({"a": Epoch(6), "b": Epoch(4)})


def test_an_epoch_whose_two_ways_of_reading_an_upstream_disagree_is_in_no_cut() -> None:
    def both(table: int, changes: int) -> Manifest:
        at = {"table": table, "changes": changes}
        sources = [
            SourcePosition(
                SourceIdentity(FORMAT, "a", (("read", way),)), UpstreamPosition(uuid_of("a"), Epoch(epoch)).encode()
            )
            for way, epoch in at.items()
        ]
        return replace(a_manifest(), sources=tuple(sources), consumed=consumption(sources))

    seen = {Epoch(4): known_epochs(both(5, 5)), Epoch(5): known_epochs(both(6, 7)), Epoch(6): known_epochs(both(8, 7))}
    lines = {"a": source("a", range(1, 9)), "b": Line(uuid_of("b"), tuple(seen), reads=True, seen=seen)}
    answer, _ = found(lines)
    assert answer == Cut({"a": Epoch(5), "b": Epoch(4)})
    lines["b"] = replace(lines["b"], epochs=(Epoch(6),))
    answer, _ = found({**lines, "a": source("a", range(1, 8))})
    assert answer == NoCut(NoCutReason.AHEAD, "b", Epoch(6), "a", Epoch(8), Epoch(7))


def test_an_epoch_from_before_the_first_batch_has_nothing_of_its_upstream_and_is_in_no_cut() -> None:
    """Where a source keeps where it began, that is committed by an epoch without rows, before any batch is planned."""
    reads = InputSpec((SOURCE, SourceIdentity(FORMAT, "a", (("read", "table"),))), ROWS)
    shown = a_manifest(
        version=Version(2),
        kind=ManifestKind.EPOCH,
        epoch=Epoch(2),
        pipeline=replace(PIPELINE, inputs=(reads,)),
        sources=(SourcePosition(SOURCE, initial="12"),),
    )
    seen = {Epoch(2): known_epochs(shown)}
    lines = {"a": source("a", range(1, 9)), "b": Line(uuid_of("b"), (Epoch(2),), reads=True, seen=seen)}
    assert newest_cut(lines) == NoCut(NoCutReason.CREATING, "b", Epoch(2))
    begun = SourcePosition(reads.sources[1], UpstreamPosition(uuid_of("a"), Epoch(8)).encode())
    shown = replace(shown, sources=(*shown.sources, begun), consumed=consumption([begun]))
    lines["b"] = replace(lines["b"], seen={Epoch(2): known_epochs(shown)})
    assert newest_cut(lines) == Cut({"a": Epoch(8), "b": Epoch(2)})


def test_an_upstream_of_the_same_name_is_not_the_one_that_was_consumed() -> None:
    lines = {"a": source("a", range(1, 9)), "b": reader("b", "a", {3: 3})}
    lines["a"] = replace(lines["a"], uuid=StreamUuid("f" * 32))
    assert newest_cut(lines) == NoCut(NoCutReason.RECREATED, "b", Epoch(3), "a", Epoch(3))


def test_an_epoch_of_the_time_of_creation_is_in_no_cut() -> None:
    lines = {
        "a": source("a", range(1, 9)),
        "b": reader("b", "a", {3: 5, 4: 5, 5: 6}, creating=2),
        "c": reader("c", "a", {9: 5}),
    }
    answer, _ = found(lines)
    assert answer == NoCut(NoCutReason.CREATING, "b", Epoch(4), lagging="c")
