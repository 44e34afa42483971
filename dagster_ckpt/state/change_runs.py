"""The change log of an epoch whose new runs are its change log: what each key was, and is."""

from collections.abc import Iterator

from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.pieces import pieces_of, rows_in
from dagster_ckpt.lsm.table import Touched
from dagster_ckpt.lsm.words import changing, one_word, said_by, touched_of
from dagster_ckpt.protocol.manifest import ChangeKind, ChangeRef, HashRange, Manifest
from dagster_ckpt.state.open_runs import OpenRuns
from dagster_ckpt.state.snapshot import PIECE_BYTES
from dagster_ckpt.storage.object_store import ObjectStore


def changes_of(store: ObjectStore, manifest: Manifest, table: str, runs: OpenRuns | None = None) -> Iterator[Touched]:
    """The keys that the manifest's epoch changed in its logged table, in pieces that fit into memory.

    By ascending hash within each task's shards; each key once, however many runs its task wrote. `store` is the
    stream's folder. Files of the change log that are no runs are left out. Raises `CorruptStateError`.
    """
    spec = next(spec for spec in manifest.pipeline.tables if spec.name == table)
    opened = OpenRuns() if runs is None else runs
    tasks: dict[Shard, list[ChangeRef]] = {}
    for ref in manifest.changes:
        if ref.kind is ChangeKind.RUN:
            tasks.setdefault(ref.shard, []).append(ref)
    for newest_first in tasks.values():
        written = [opened.run(store, ref, spec.schema) for ref in newest_first]
        for piece in pieces_of(written, HashRange(), rows_in(PIECE_BYTES, newest_first, spec.schema)):
            words = [word for run in written if len(word := said_by(run, piece, spec))]
            if words:
                yield touched_of(changing(one_word(words, spec.keys)))
