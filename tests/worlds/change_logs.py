"""The change log of tests."""

from collections.abc import Iterable

import pyarrow as pa

from dagster_ckpt.protocol.manifest.manifest import ChangeRef
from dagster_ckpt.state.committed import change_log
from dagster_ckpt.storage.stores.object_store import ObjectStore


def rows_of_log(store: ObjectStore, refs: Iterable[ChangeRef], schema: pa.Schema) -> pa.Table:
    """All rows of these files."""
    return pa.Table.from_batches(
        change_log.batches(store, refs, schema, dict(zip(schema.names, schema.names, strict=True))), schema
    )
