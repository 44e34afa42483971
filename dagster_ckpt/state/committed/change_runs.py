"""The change log of epochs whose new runs are their change log: what each key was, and is."""

from collections.abc import Iterator, Sequence

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.runs.deltas import changing, delta_of_run, merge_deltas, touched_rows
from dagster_ckpt.lsm.runs.hash_pieces import pieces_of, rows_in
from dagster_ckpt.lsm.table import Touched
from dagster_ckpt.protocol.manifest.manifest import ChangeKind, Manifest
from dagster_ckpt.state.committed.table_snapshot import PIECE_BYTES
from dagster_ckpt.state.open_runs import OpenRuns
from dagster_ckpt.storage.stores.object_store import ObjectStore


def changes_of(
    store: ObjectStore,
    manifests: Sequence[Manifest],
    table: str,
    within: HashRange | None = None,
    runs: OpenRuns | None = None,
) -> Iterator[Touched]:
    """The keys that the manifests' epochs changed in their logged table, in pieces that fit into memory.

    The epochs follow one another in one lineage. Each key that any of them touched comes once, by ascending hash: what
    it was before the first of them, and is after the last, which may be the same. `within`: only these hashes. `store`
    is the stream's folder. Files of the change log that are no runs are left out. Raises `CorruptStateError`.
    """
    opened = OpenRuns() if runs is None else runs
    newest_first = [
        ref for manifest in reversed(manifests) for ref in manifest.changes if ref.kind is ChangeKind.RUN
    ]  # the runs of one task are; a key is in those of one task alone
    if not newest_first:
        return
    spec = next(spec for spec in manifests[-1].pipeline.tables if spec.name == table)
    written = [opened.run(store, ref, spec.schema) for ref in newest_first]
    for piece in pieces_of(written, within or HashRange(), rows_in(PIECE_BYTES, newest_first, spec.schema)):
        deltas = [delta for run in written if len(delta := delta_of_run(run, piece, spec))]
        if deltas:
            yield touched_rows(changing(merge_deltas(deltas, spec.keys)))
