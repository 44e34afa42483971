"""A process that delivers into a topic for as long as it lives: `kafka_writer.py ADDRESS TOPIC LAST [AT WAITS_S]`.

Transaction 7 has the rows 700 to 799. In transaction AT it sends itself SIGSTOP between two batches, and once it
goes on it waits for WAITS_S seconds. It ends with status 3 if another delivery has taken over.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator

import pyarrow as pa

from dagster_ckpt.delivery.destination import PositionMovedError, Transaction
from dagster_ckpt.destinations import Kafka
from dagster_ckpt.testing.destination_suite import APPENDED, COLUMNS

ROWS = 100
MOVED = 3


def rows_of(number: int, stops: bool = False, waits_s: int = 0) -> Iterator[pa.RecordBatch]:
    """Two batches."""
    for begin in (number * ROWS, number * ROWS + ROWS // 2):
        flights = range(begin, begin + ROWS // 2)
        yield pa.RecordBatch.from_pydict({"carrier": ["UA"] * len(flights), "flights": list(flights)}, COLUMNS)
        if stops:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(waits_s)
            stops = False


def main(address: str, topic: str, last: int, stops_at: int | None = None, waits_s: int = 0) -> int:
    # Small requests that leave at once, so that a kill finds a transaction half sent.
    to = Kafka(address, topic, config={"linger.ms": "0", "batch.num.messages": "10"})
    try:
        with to.open("one", APPENDED) as session:
            while session.position is None or int(session.position) < last:
                number = 1 + int(session.position or 0)
                session.apply(Transaction(session.position, str(number), rows_of(number, number == stops_at, waits_s)))
    except PositionMovedError:
        return MOVED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
