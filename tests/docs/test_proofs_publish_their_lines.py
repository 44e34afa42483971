"""`docs/results/proofs.md` has a line for each proof whose command publishes it, and publishing replaces that line."""

import re
from pathlib import Path

import pytest

from scripts import proofs

PUBLISHERS = [
    file
    for folder in ("benchmarks", "scripts", "tests")
    for file in sorted((proofs.ROOT / folder).rglob("*.py"))
    if re.search(r"proofs\.publish\(\s*PROOF", file.read_text())
]
PAGE = """# Results

| what | command | newest result | goal |
|---|---|---|---|
| worlds | `make simulate` | 2026-01-01, on abc: 10 | 20 |
| worlds, rebuilt | `make simulate` | 2026-01-01, on abc: 5 | 20 |
"""


def test_commands_publish() -> None:
    assert len(PUBLISHERS) == 8


@pytest.mark.parametrize("file", PUBLISHERS, ids=lambda file: str(file.relative_to(proofs.ROOT)))
def test_each_proof_that_is_published_has_one_line(file: Path) -> None:
    [proof] = re.findall(r'^PROOF = "(.*)"$', file.read_text(), re.MULTILINE)
    lines = proofs.PAGE.read_text().splitlines()
    assert len([line for line in lines if line.startswith(f"| {proof} | ")]) == 1


def test_every_line_has_a_command_and_a_result() -> None:
    rows = [line for line in proofs.PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    assert rows
    for row in rows:
        _, command, result, _ = row.split(" | ")
        assert "`" in command, row
        assert result, row


def test_a_result_takes_the_place_of_the_older_one(tmp_path: Path) -> None:
    page = tmp_path / "proofs.md"
    page.write_text(PAGE)
    proofs.publish("worlds", "30, no promise broken", "2026-11-28, on def", page)
    assert page.read_text() == PAGE.replace("2026-01-01, on abc: 10", "2026-11-28, on def: 30, no promise broken")


def test_a_proof_without_a_line_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "proofs.md"
    page.write_text(PAGE)
    with pytest.raises(KeyError, match="kills"):
        proofs.publish("kills", "none lost", page=page)
