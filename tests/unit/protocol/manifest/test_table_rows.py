"""`Manifest.table_rows`, also of manifests that a release without it has written."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.protocol.manifest.codec import decode_manifest, encode_manifest
from dagster_ckpt.protocol.manifest.manifest import Manifest, Statistics
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


def test_streams_of_an_older_store_show_their_rows_or_nothing(tmp_path: Path) -> None:
    for number, written in enumerate(STORES):
        store = CheckpointStore(unpacked(written, tmp_path / str(number)).as_uri())
        counted = {name: store.stream(name).manifest().table_rows for name in store.streams()}
        read = {name: store.stream(name).read().num_rows for name in counted}
        assert {name: rows for name, rows in counted.items() if rows is not None and rows != read[name]} == {}
        assert any(rows for rows in counted.values())
