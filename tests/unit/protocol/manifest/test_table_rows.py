"""`Manifest.table_rows`, also of manifests that a release without it has written."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.ids import Epoch, Nonce, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.manifest.codec import decode_manifest, encode_manifest
from dagster_ckpt.protocol.manifest.manifest import Manifest, Statistics
from dagster_ckpt.protocol.transitions.edits import EpochEdit, Stamp, committed
from dagster_ckpt.protocol.transitions.manifest_rules import statistics_add_up
from tests.fixtures.stores.read import STORES, unpacked
from tests.worlds.manifests import PIPELINE, a_manifest

TWO_TABLES = replace(PIPELINE, tables=(*PIPELINE.tables, replace(PIPELINE.tables[0], name="distinct_0")))
APPENDS = replace(PIPELINE, operator="append", keys=(), tables=(), appends=True)
HELD = Statistics(state_rows=12, total_epochs=3, total_rows_out=3_000, table_rows=5)


def as_of_an_older_release(manifest: Manifest) -> Manifest:
    fields = json.loads(gzip.decompress(encode_manifest(manifest)))
    del fields["statistics"]["table_rows"]
    return decode_manifest(gzip.compress(json.dumps(fields).encode()), "m")


def test_only_rows_of_the_table_count() -> None:
    assert a_manifest(pipeline=TWO_TABLES, statistics=HELD).table_rows == 5
    assert a_manifest(pipeline=APPENDS, statistics=HELD).table_rows == 3_000


def test_an_older_manifest_shows_them_only_where_no_other_table_was_counted() -> None:
    older = as_of_an_older_release(a_manifest(statistics=HELD))
    assert (older.statistics.table_rows, older.table_rows) == (None, 12)
    assert as_of_an_older_release(a_manifest(pipeline=TWO_TABLES, statistics=HELD)).table_rows is None
    assert as_of_an_older_release(a_manifest(pipeline=TWO_TABLES)).table_rows == 0
    assert as_of_an_older_release(a_manifest(pipeline=APPENDS, statistics=HELD)).table_rows == 3_000


def test_epochs_go_on_from_an_older_manifest() -> None:
    acks = tuple(ShardAck(Shard(shard), rows_out=1, state_rows=2, table_rows=1) for shard in range(4))
    edit = EpochEdit(acks, (), 0, epoch_ms=1)
    for pipeline, expected in ((PIPELINE, 16), (TWO_TABLES, None), (APPENDS, 3_004)):
        runs = {spec.name: ((),) * 4 for spec in pipeline.tables}
        whole = a_manifest(pipeline=pipeline, statistics=HELD, epoch=Epoch(1), runs=runs)
        parent = as_of_an_older_release(whole)
        child = committed(parent, edit, 5, Stamp(Nonce("n"), 0))
        assert child.table_rows == expected, pipeline.operator
        assert decode_manifest(encode_manifest(child), "m") == child
        assert statistics_add_up(parent, child)


def test_streams_of_an_older_store_show_their_rows_or_nothing(tmp_path: Path) -> None:
    for number, written in enumerate(STORES):
        store = CheckpointStore(unpacked(written, tmp_path / str(number)).as_uri())
        counted = {name: store.stream(name).manifest().table_rows for name in store.streams()}
        read = {name: store.stream(name).read().num_rows for name in counted}
        assert {name: rows for name, rows in counted.items() if rows is not None and rows != read[name]} == {}
        assert any(rows for rows in counted.values())
