"""`docs/format.md` names everything that is written: a field that nobody described would be unreadable in ten years."""

import dataclasses
import re
from pathlib import Path

import pytest

from dagster_ckpt.lsm.file import run_file, run_tail
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, EPOCH, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from dagster_ckpt.protocol.drain_request import DrainRequest
from dagster_ckpt.protocol.lease import EpochProgress, Lease, LeaseHolder, ProcessId
from dagster_ckpt.protocol.manifest import manifest
from dagster_ckpt.protocol.manifest.packing import FORMAT

PAGE = (Path(__file__).parents[2] / "docs/format.md").read_text()
WORDS = set(re.findall(r"[a-z0-9_]+", " ".join(re.findall(r"`([^`\n]+)`", PAGE))))

WRITTEN = [
    *(kind for kind in vars(manifest).values() if dataclasses.is_dataclass(kind) and isinstance(kind, type)),
    Lease,
    LeaseHolder,
    ProcessId,
    EpochProgress,
    DrainRequest,
    run_tail.Descriptor,
]


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.__name__)
def test_each_field_that_is_written_is_on_the_page(kind: type) -> None:
    assert [field.name for field in dataclasses.fields(kind) if field.name not in WORDS] == []


def test_each_word_of_an_enumeration_is_on_the_page() -> None:
    kinds = (manifest.ManifestKind, manifest.SortKind, manifest.ChangeKind, manifest.BackfillStatus)
    assert [word for kind in kinds for word in kind if word not in WORDS] == []


def test_the_columns_and_words_of_the_change_log_are_on_the_page() -> None:
    of_runs = (run_file.HASH, run_file.TOMBSTONE, run_file.BEFORE)
    words = (EPOCH, CHANGE_TYPE, INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE, *of_runs)
    assert [word for word in words if word not in WORDS] == []


def test_the_page_is_of_the_format_that_is_written() -> None:
    assert f"Format number **{FORMAT}**" in PAGE
