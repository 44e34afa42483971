"""The code on `docs/process.md`, as the page has it."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs/process.md"


def code_of_the_page() -> dict[str, Any]:
    """All names that the page's blocks define, run one after another, as a user's file would have them."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(PAGE), "exec"), names)
    return names
