import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
WALKS = dict(re.findall(r"\*\*(.+\?)\*\*\n\n((?:\d+\. .+\n)+)", PAGE))
STEP = re.compile(r"\d+\. \[`(.+?)`\]\((.+?)\): (.+)")
FILES_MAX = 12


def test_there_are_seven_walks() -> None:
    assert len(WALKS) == 7


@pytest.mark.parametrize("question", WALKS)
def test_each_file_of_a_walk_is_there_and_has_what_the_walk_names(question: str) -> None:
    steps = [STEP.fullmatch(line) for line in WALKS[question].splitlines()]
    assert None not in steps
    assert len(steps) <= FILES_MAX
    for step in filter(None, steps):
        shown, path, why = step.groups()
        assert path == f"dagster_ckpt/{shown}"
        text = (ROOT / path).read_text()
        names = [name for name in re.findall(r"`(\w+)`", why) if not (ROOT / path).with_name(f"{name}.py").exists()]
        assert [name for name in names if name not in text] == [], path


def test_each_path_to_touch_is_there() -> None:
    table = PAGE.partition("## To add something")[2].partition("\n## ")[0]
    paths = re.findall(r"`((?:\w+/)+(?:[\w.]+)?|[\w/]+\.(?:py|md|toml))`", table)
    assert paths
    missing = [path for path in paths if not ((ROOT / path).exists() or (ROOT / "dagster_ckpt" / path).exists())]
    assert missing == []
