import gzip
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.protocol.manifest import codec, packing
from dagster_ckpt.protocol.manifest.codec import (
    FILES_SEEN,
    MANIFEST_BYTES_MAX,
    decode_manifest,
    decode_nonce,
    encode_manifest,
)
from dagster_ckpt.protocol.manifest.manifest import (
    FileSeen,
    IndexedList,
    Manifest,
    ManifestKind,
    ShardTime,
    SourcePosition,
    StepWork,
)
from dagster_ckpt.protocol.manifest.packing import decode_entries, encode_pieces
from dagster_ckpt.protocol.object_names import FileId, state_name
from tests.worlds.manifests import SOURCE, a_change, a_manifest, a_run

RUNS_THEN = {"total": ((a_run(1, 2, 0), a_run(1, 3, 0)), (a_run(1, 2, 1),), (), ())}


def _json(data: bytes) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(data)))


def _edited(edit: Callable[[dict[str, Any]], object]) -> bytes:
    """The bytes of a good manifest, edited by hand."""
    manifest = a_manifest(runs=RUNS_THEN)
    fields = _json(encode_manifest(manifest))
    edit(fields)
    return gzip.compress(json.dumps(fields).encode())


def test_people_can_read_a_manifest_with_zcat() -> None:
    fields = _json(encode_manifest(a_manifest()))
    assert fields["format"] == 1
    assert fields["kind"] == "open"
    assert fields["pipeline"]["output"]["text"] == "carrier: string\ndelay: double"


def test_the_nonce_that_is_read_alone_is_the_manifests() -> None:
    manifest = a_manifest()
    assert decode_nonce(encode_manifest(manifest), "m") == manifest.nonce


@pytest.mark.parametrize("wrong", [[1, -1, 1], [1, True, 1], [1, 1.5, 1], [1, "2", 1], [1, None, 1]])
def test_a_column_of_numbers_with_another_value_in_it_is_damage(wrong: list[object]) -> None:
    data = _edited(lambda fields: fields["runs"]["total"]["runs"].update(rows=wrong))
    with pytest.raises(CorruptStateError, match="rows"):
        decode_manifest(data, "m")


def test_a_manifest_without_the_fields_that_may_be_left_out_is_read() -> None:
    def older(fields: dict[str, Any]) -> None:
        for name in ("checkpoint_interval_ms", "slowest_shards", "parent_nonce"):
            fields.pop(name, None)

    found = decode_manifest(_edited(older), "m")
    assert (found.checkpoint_interval_ms, found.slowest_shards, found.parent_nonce) == (None, (), None)
    assert found == decode_manifest(_edited(lambda fields: None), "m")


def test_advice_that_is_not_known_is_skipped_wherever_it_is() -> None:
    def newer(fields: dict[str, Any]) -> None:
        for each in (fields, fields["owner"], fields["pipeline"], fields["statistics"], fields["retained"]):
            each["_advice"] = {"of": "a later release"}

    assert decode_manifest(_edited(newer), "m") == decode_manifest(_edited(lambda fields: None), "m")


@pytest.mark.parametrize("place", ["owner", "pipeline", "statistics", "retained"])
def test_a_field_that_is_not_known_must_be_understood_wherever_it_is(place: str) -> None:
    with pytest.raises(IncompatibleStateError, match="newer release"):
        decode_manifest(_edited(lambda fields: fields[place].update(of_a_later_release=1)), "m")


def test_one_step_writes_no_steps_and_several_come_back() -> None:
    def fields_of(manifest: Manifest) -> dict[str, Any]:
        return _json(encode_manifest(manifest))

    took = (ShardTime(Shard(1), "worker", 900, 3), ShardTime(Shard(0), "worker", 20, 5))
    alone = fields_of(a_manifest(slowest_shards=took))
    assert "steps" not in alone
    assert "step" not in alone["slowest_shards"], "one step has no number"

    several = a_manifest(
        steps=(StepWork(8, 6, 1, 900), StepWork(6, 2, 0, 40)), slowest_shards=(replace(took[0], step=1), took[1])
    )
    assert decode_manifest(encode_manifest(several), "m") == several
    assert fields_of(several)["slowest_shards"]["step"] == [1, 0]
    both = a_manifest(slowest_shards=tuple(replace(each, step=2) for each in took))
    assert decode_manifest(encode_manifest(both), "m") == both


def test_the_same_manifest_always_has_the_same_bytes() -> None:
    assert encode_manifest(a_manifest()) == encode_manifest(a_manifest())


def test_a_large_stream_fits_and_is_quick() -> None:
    def run(shard: int, number: int) -> Any:
        path = state_name(
            "total", (Shard(shard),), 512, FileId(Term(3), Epoch(900 + number), Shard(shard), 7919 * shard)
        )
        # Distinct, incompressible numbers, as real checksums and hash bounds are.
        checksum = f"{(shard * 8 + number + 1) * 0x9E3779B97F4A7C15 % 2**64:016x}"
        hashes = HashRange((shard << 55) + int(checksum[:8], 16), (shard << 55) + (1 << 54) + int(checksum[8:], 16))
        return replace(a_run(3, 900, shard), path=path, checksum=checksum, hashes=hashes, rows=shard * 77 % 5000)

    runs = tuple(tuple(run(shard, number) for number in range(8)) for shard in range(512))
    manifest = a_manifest(shards=512, runs={"total": runs})
    data = encode_manifest(manifest)
    assert len(data) < 200_000
    started = time.perf_counter()
    assert decode_manifest(encode_manifest(manifest), "m") == manifest
    assert time.perf_counter() - started < 2, "measured 0.035 s"


def test_a_manifest_above_4_mb_is_refused_before_it_is_written() -> None:
    numbers = [number * 0x9E3779B97F4A7C15 % 2**64 for number in range(300_000)]  # that do not compress
    files = tuple(FileSeen(f"file:///data/{number:x}", number >> 16) for number in numbers)
    manifest = a_manifest(sources=(SourcePosition(SOURCE, files=IndexedList(tail=files)),))
    with pytest.raises(InvalidPipelineError, match=r"Use fewer shards.* bytes=\d+, bytes_max=4194304"):
        encode_manifest(manifest)
    assert MANIFEST_BYTES_MAX == 4 * 2**20


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../other/state/x", "state/../../x", "state//x", "", "state/.x", "state/x\n", None, 7],
)
@pytest.mark.parametrize("where", ["runs", "changes", "index"])
def test_a_path_that_leaves_the_streams_folder_is_refused(path: object, where: str) -> None:
    def edit(fields: dict[str, Any]) -> None:
        if where == "runs":
            fields["runs"]["total"]["runs"]["path"][1] = path
        elif where == "changes":
            change = _json(encode_manifest(a_manifest(changes=(a_change(1, 2, 0),))))["changes"]
            fields["changes"] = {**change, "path": [path]}
        else:
            index = {"path": [path], "entries": [1], "bytes": [1], "checksum": [""], "level": [0], "ancestor": [None]}
            fields["files"]["index"] = {"count": 1, **index}

    with pytest.raises(CorruptStateError, match="not a name inside the stream's folder"):
        decode_manifest(_edited(edit), "m")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda m: m.pop("term"), "fields are missing: term"),
        (lambda m: m.update(version="1"), "version: expected int, found str"),
        (lambda m: m.update(version=True), "version: expected int, found bool"),
        (lambda m: m.update(version=1.0), "version: expected int, found float"),
        (lambda m: m.update(epoch=-1), "epoch: expected a number from 0 to 9223372036854775807"),
        (lambda m: m.update(retained=[]), "retained: expected dict"),
        (lambda m: m["runs"]["total"]["shards"].__setitem__(0, 3), "total: expected 4 runs, found 3"),
        (lambda m: m["runs"].update(total={}), "total: expected shards and runs"),
        (lambda m: m["runs"]["total"]["runs"]["path"].pop(), "path: expected 3 values, found 2"),
        (lambda m: m["runs"]["total"]["runs"].update(hashes={"all": "xyz"}), "hashes: expected two hashes"),
        (lambda m: m["runs"]["total"]["runs"].update(moved_lo={"all": "x" * 16}), "moved_lo: invalid literal"),
        (lambda m: m["pipeline"]["output"].update(ipc="AAAA"), "output: not an Arrow schema"),
        (lambda m: m["pipeline"]["output"].update(ipc="!"), "output: not an Arrow schema"),
        (lambda m: m["pipeline"].update(parameters=[]), "parameters: expected dict"),
        (lambda m: m.pop("format"), "no format number"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_damaged_and_says_where(
    edit: Callable[[dict[str, Any]], object], reason: str
) -> None:
    with pytest.raises(CorruptStateError, match=rf"object=manifest/x, reason=.*{reason}"):
        decode_manifest(_edited(edit), "manifest/x")


HUGE = {"count": 10**9, "first": {"all": 3}, "last": {"all": 4}}
NUMBERS = {"count": 10**9, "rows_in": {"all": 0}, "rows_out": {"all": 0}, "late_rows": {"all": 0}}


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m.update(abandoned=HUGE),
        lambda m: m.update(abandoned={**HUGE, "count": 10**30}),
        lambda m: m.update(abandoned={"count": 5_000, "first": list(range(5_000)), "last": list(range(5_000))}),
        lambda m: m.update(
            retained={"count": 10**9, "epoch": {"all": 1}, "version": {"all": 1}, "time_ms": {"all": 1}}
        ),
        lambda m: m.update(steps={**NUMBERS, "milliseconds": {"all": 0}}),
        lambda m: m["runs"]["total"].update(shards=[10**9]),
        lambda m: m.update(shards=2**40),
        lambda m: m.update(version=2**63),
        lambda m: m.update(time_ms=-(2**63) - 1),
    ],
)
def test_a_small_object_with_huge_numbers_is_damaged_at_once(edit: Callable[[dict[str, Any]], object]) -> None:
    data = _edited(edit)
    assert len(data) < 100_000
    started = time.process_time()
    with pytest.raises(CorruptStateError):
        decode_manifest(data, "m")
    assert time.process_time() - started < 1


def test_many_equal_values_are_read_back_and_take_as_much_text_as_they_are() -> None:
    work = StepWork(0, 0, 0, 0)
    for count in (256, 257, 5_000):
        manifest = a_manifest(steps=(work,) * count)
        data = encode_manifest(manifest)
        assert decode_manifest(data, "m") == manifest
        assert count <= 256 or len(_json(data)["steps"]["rows_in"]) == count


def test_a_manifest_that_unpacks_to_too_much_is_neither_written_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    large = a_manifest(rollbacks=(" " * 100_000,))
    data = encode_manifest(large)
    for module in (codec, packing):
        monkeypatch.setattr(module, "JSON_BYTES_MAX", 100_000)
    with pytest.raises(InvalidPipelineError, match="the epoch's manifest is too large; nothing was committed"):
        encode_manifest(large)
    with pytest.raises(CorruptStateError, match="or there are too many"):
        decode_manifest(data, "m")


NOT_OBJECTS = [gzip.compress(text, mtime=0) for text in (b"", b"[]", b"[" * 100_000)]


@pytest.mark.parametrize("data", [b"", b"{}", *NOT_OBJECTS])
def test_bytes_that_are_no_manifest_are_damage(data: bytes) -> None:
    with pytest.raises(CorruptStateError, match="object=m"):
        decode_manifest(data, "m")


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m.update(format=4),
        lambda m: m.update(colour="red"),
        lambda m: m.update(kind="teleport"),
        lambda m: m["owner"].update(colour="red"),
        lambda m: m["runs"]["total"]["runs"].update(colour={"all": "red"}),
    ],
)
def test_what_a_newer_release_wrote_is_not_guessed_at(edit: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(IncompatibleStateError, match=r"upgrade before you go on\. object=m, found="):
        decode_manifest(_edited(edit), "m")


def test_an_index_object_of_another_kind_is_not_misread() -> None:
    [(_, data)] = encode_pieces(FILES_SEEN, (FileSeen("file:///a", -5),))
    assert decode_entries(FILES_SEEN, data, "i") == (FileSeen("file:///a", -5),)
    with pytest.raises(CorruptStateError):
        decode_manifest(data, "i")
    with pytest.raises((CorruptStateError, IncompatibleStateError)):
        decode_entries(FILES_SEEN, encode_manifest(a_manifest()), "i")


def test_schemas_keep_what_arrow_knows_of_them() -> None:
    schema = pa.schema([pa.field("t", pa.timestamp("us", "UTC"), nullable=False)], metadata={"a": "b"})
    pipeline = replace(a_manifest().pipeline, output=schema)
    read = decode_manifest(encode_manifest(a_manifest(pipeline=pipeline, kind=ManifestKind.FORK)), "m")
    assert read.pipeline.output.equals(schema, check_metadata=True)
