"""What the options of a Spark reader choose, without Spark."""

from pathlib import Path

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.spark.batch_source import EPOCH, NONCE, STORE, STREAM, VERSION, choose
from tests.unit.history.reading_streams import MadeStreams


def test_a_table_loaded_before_a_restore_is_no_other_table_after_it(tmp_path: Path) -> None:
    streams = MadeStreams(tmp_path)
    stream = streams.source("departures", epochs=1)
    backup = streams.back_up(stream)
    streams.commit(stream, 2)
    shown = stream.writer.manifest
    loaded = {
        STORE: streams.url,
        STREAM: "departures",
        EPOCH: str(shown.epoch),
        VERSION: str(shown.version),
        NONCE: shown.nonce,
    }
    [found] = choose(loaded, {}).manifests
    assert (found.epoch, found.nonce) == (shown.epoch, shown.nonce)
    streams.restore(stream, backup)
    streams.commit(stream, 2)
    both = rf"restored from a backup.*epoch={shown.epoch} \({shown.nonce}\), there={shown.epoch} \("
    with pytest.raises(InvalidPipelineError, match=both):
        choose(loaded, {})
    streams.close()
