"""All cases of a seed, one after another."""

import json
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tests.damage.cases import WrongError, cases_of, result_of
from tests.damage.streams import specimens


@dataclass(frozen=True)
class Outcome:
    """What came of one seed. `wrong` are the cases that led to what they must never lead to."""

    seed: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    wrong: tuple[str, ...] = ()

    def line(self) -> str:
        """Its line in the results file."""
        words = ["git", "describe", "--always", "--dirty"]
        described = subprocess.run(words, capture_output=True, text=True, check=False)
        return json.dumps(
            {
                "seed": self.seed,
                "wrong": self.wrong,
                "seconds": round(self.seconds, 1),
                "code": described.stdout.strip() or "unknown",
                "counts": dict(sorted(self.counts.items())),
            }
        )


def damaged(seed: int, folder: Path, every: int = 1) -> Outcome:
    """Damage every object of some streams, which are made below `folder`, in every way, each at a place of its own.

    Of all these cases only each `every`th is done.
    """
    began = time.monotonic()
    counts: Counter[str] = Counter()
    wrong = []
    with specimens(folder) as made:
        for specimen in made:
            for case in islice(cases_of(specimen, seed), seed % every, None, every):
                try:
                    counts += result_of(specimen, case)
                except WrongError as error:
                    wrong.append(str(error))
    return Outcome(seed, time.monotonic() - began, counts, tuple(wrong))
