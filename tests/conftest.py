"""What all tests share: a test below a folder that is named like a marker has that marker."""

from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
MARKERS = {"chaos", "dagster", "golden", "spark"}

# Two busy cores make any deadline a matter of luck; pytest's timeout catches what hangs.
settings.register_profile("house", deadline=None)
settings.load_profile("house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for folder in MARKERS.intersection(item.path.relative_to(TESTS).parts):
            item.add_marker(folder)
