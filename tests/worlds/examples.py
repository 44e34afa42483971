"""How many examples Hypothesis tries: few in each run of the tests, many times as many by `make properties`."""

import os
from typing import Any

from hypothesis import settings

TIMES = int(os.environ.get("DAGSTER_CKPT_TEST_EXAMPLES", "1"))
"""What every number of examples is multiplied by."""


def examples(count: int, **others: Any) -> settings:
    """Settings for so many examples in a usual run; `others` are Hypothesis' own."""
    return settings(max_examples=count * TIMES, **others)
