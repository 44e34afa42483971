"""The README's table promises nothing without naming the test that shows it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TABLE = README.partition("## What survives what")[2].partition("\n## ")[0]


def test_every_row_names_a_test_that_is_there() -> None:
    rows = [line for line in TABLE.splitlines() if line.startswith("|")][2:]
    assert rows
    for row in rows:
        named = re.findall(r"\]\((tests/\S+\.py) \"(\w+)\"\)", row)
        assert named, row
        for path, test in named:
            assert f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"
