"""How many examples Hypothesis tries: few in each run of the tests, many times as many by `make properties`."""

import os
from typing import Any

from hypothesis import settings

TIMES = int(os.environ.get("DAGSTER_CKPT_TEST_EXAMPLES", "1"))
"""What every number of examples is multiplied by."""


def examples(count: int, usual: int | None = None, **others: Any) -> settings:
    """Settings for so many examples; `others` are Hypothesis' own.

    `usual` is for what takes seconds: so many in a usual run, which leaves the rest to `make properties`.
    """
    return settings(max_examples=(usual or count) if TIMES == 1 else count * TIMES, **others)
