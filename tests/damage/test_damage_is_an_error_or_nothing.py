"""A sample of `make damage`: whatever is damaged, each reading gives the rows of before or an error that names it."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from dagster_ckpt.lsm.file.blocks import CheckedBytes
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from tests.damage.campaign import damaged
from tests.damage.cases import Damage, WrongError, cases_of, result_of
from tests.damage.streams import specimens

KINDS = {"manifest", "state", "changes", "index", "pins", "pins-changed", "verdicts", "lease", "trimmed", "collector"}


def test_damage_is_a_clear_error_or_without_effect(tmp_path: Path) -> None:
    outcome = damaged(0, tmp_path, every=15)
    assert outcome.wrong == ()
    assert outcome.counts["cases"] > 50
    assert outcome.counts["an error that names it"] > 25
    assert outcome.counts["gone back over"] > 20


def test_every_kind_of_object_is_damaged_in_every_way_in_at_least_500_cases(tmp_path: Path) -> None:
    with specimens(tmp_path) as made:
        cases = [case for specimen in made for case in cases_of(specimen, 0)]
    assert {case.object.partition("/")[0].partition(".")[0] for case in cases} == KINDS
    assert {case.damage for case in cases} == set(Damage)
    assert len(cases) >= 500


def test_what_is_signed_again_is_an_answer_or_an_error_of_ours() -> None:
    """A sample of `make fuzz`, in a process of its own: it limits its memory.

    In case 637 a list has 2**31 - 1 epochs, all alike: before counts were bounded, it stalled each reader.
    """
    words = [sys.executable, "-m", "tests.damage.fuzz", "--first", "620", "--cases", "20"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("left_out", "below"),
    [
        (patch.object(CheckedBytes, "check_blocks", lambda self, blocks: None), "state"),
        (
            patch.object(ManifestChain, "_describe_break", lambda self, last, *_: self.read(last.version - 1)),
            "manifest",
        ),
        (
            patch("dagster_ckpt.history.damage.damage_advice.epoch_without", lambda chain, newest, error: newest.epoch),
            "state",
        ),
    ],
    ids=["blocks are not checked", "the manifest before is taken", "any epoch is good"],
)
def test_an_engine_that_leaves_a_check_out_is_caught(left_out: object, below: str, tmp_path: Path) -> None:
    with specimens(tmp_path) as [keyed, *_]:
        cases = [case for case in cases_of(keyed, 0) if case.object.startswith(below)]
        with left_out, pytest.raises(WrongError):  # type: ignore[attr-defined]
            sum((result_of(keyed, case) for case in cases), Counter())
