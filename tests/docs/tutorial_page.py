"""`docs/tutorial.md`: its blocks, and the project as it is after each step."""

import re
import shutil
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from tests.docs import shop_store

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial.md").read_text()
TEMPLATE = ROOT / "dagster_ckpt/cli/project/template"
STEPS = dict(zip(range(11), re.split(r"^## \d+\. ", PAGE, flags=re.MULTILINE), strict=True))
"""The text before step 1, and the ten steps."""


def block(step: int, containing: str) -> str:
    [found] = [block for block in shop_store.python_of(STEPS[step]) if containing in block]
    return found


def definitions(last_step: int) -> str:
    """`definitions.py` as the tutorial has made it after this step."""
    text = (TEMPLATE / "definitions.py").read_text()
    report, defs = text[text.index("@dg.asset\n") :], text[text.index("defs = ") :]
    if last_step >= 4:
        text = text.replace(report, block(4, "def all_flights") + "\n\n" + report)
        text = text.replace(
            "assets=[delay_by_carrier, late_carriers]", "assets=[delay_by_carrier, late_carriers, all_flights]"
        )
    if last_step >= 5:
        text = text.replace(
            text[text.index("defs = ") :], block(5, "def delays_are_plausible") + "\n\n" + block(5, "defs = ")
        )
    if last_step >= 8:
        text = text.replace("import SparkSession", "import SparkSession, functions as F", 1)
        text = text.replace("assets=[delay_by_carrier", "assets=[no_early_departures, delay_by_carrier")
        text = text.replace("@streaming_asset(", block(8, "def no_early_departures") + "\n\n@streaming_asset(", 1)
    if last_step >= 9:
        before = text.index("def delay_by_carrier")
        begin = text.index("    return Stream", before)
        text = text[:begin] + indent(block(9, "worst_delay"), "    ") + text[text.index("\n", begin) + 1 :]
    assert defs.partition("(")[0] in text
    return text


def load(last_step: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(str(folder))
    for module in ("departures", "defs"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    names: dict[str, Any] = {"__file__": str(folder / "definitions.py"), "__name__": "definitions"}
    exec(compile(definitions(last_step), "definitions.py", "exec"), names)
    return names
