from pathlib import Path

import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.runtime.spark.unseen_store import host_named
from dagster_ckpt.storage.stores.address import open_store


def test_a_missing_object_is_the_hosts_fault_where_it_sees_nothing_of_the_stream(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    with (
        pytest.raises(InvalidPipelineError, match=r"mount the same file system.*host=.*store=file:.*found: lost"),
        host_named(store),
    ):
        raise CorruptStateError("lost")
    store.put(manifest_name(Version(1)), b"x")
    with pytest.raises(CorruptStateError, match=r"^lost$"), host_named(store):
        raise CorruptStateError("lost")
