"""The results file: a line of JSON for each kill that a destination met, and what its round's comparison found."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime

from tests.chaos.delivery.fire import Outcome
from tests.chaos.lanes import Wrong
from tests.chaos.results import Line


def lines_of(outcome: Outcome, about: Mapping[str, object], number: int) -> list[Line]:
    """A line for each kill of the round of this number; `about` says what is the same for all of them."""
    shared = {**about, "at": datetime.now(UTC).isoformat(timespec="seconds"), "load": round(os.getloadavg()[0], 1)}
    lines: list[Line] = []
    for kill in outcome.kills:
        wrong = outcome.wrong.get(kill.target, Wrong())
        lines.append(
            {
                **shared,
                "destination": kill.target,
                "kind": str(kill.kind),
                "seconds": None if kill.seconds is None else round(kill.seconds, 2),
                # Destinations are compared each on its own: what one has lost is no other's.
                "round": f"{number} of {kill.target}",
                "compared": kill.target in outcome.wrong,
                "lost": wrong.lost + wrong.other,
                "doubled": wrong.doubled,
            }
        )
    return lines
