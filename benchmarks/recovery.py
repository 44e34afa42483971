"""How long a process that knows nothing of a stream needs to its first new epoch: that stream's, and an empty one's.

    python -m benchmarks.recovery FOLDER TURN ROWS

FOLDER has the `store` and `inbox` of a growth cell, with one new file in the inbox. In odd turns the empty stream goes
first. Prints both seconds as JSON. A third stream has gone before both, so that neither pays for what Spark and its
Python workers load once. All three have the same options.
"""

import json
import sys
from pathlib import Path

from benchmarks.inputs import Inbox
from benchmarks.ours import Ours
from benchmarks.plan import Spread
from benchmarks.session import start


def main(folder: Path, turn: int, rows: int) -> None:
    scratch = folder / f"recovery-{turn}"
    spark = start(scratch)
    inbox = Inbox(scratch / "inbox", rows, Spread.UNIFORM)
    inbox.put(1, rows)
    [_] = Ours.totals(spark, inbox.folder, scratch / "first", retained=1).work()
    sides = {
        "full": Ours.totals(spark, folder / "inbox", folder / "store", retained=1),
        "empty": Ours.totals(spark, inbox.folder, scratch / "empty", retained=1),
    }
    order = list(sides) if turn % 2 == 0 else list(reversed(sides))
    seconds: dict[str, float] = {}
    for name in order:
        [seconds[name]] = sides[name].work()
    spark.stop()
    print(json.dumps([round(seconds[name], 4) for name in ("full", "empty")]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
