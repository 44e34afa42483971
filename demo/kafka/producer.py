"""Produces the flights of a year, day by day, as JSON records of the topic."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.errors import DemoError
from demo.kafka.places import FLIGHTS

PARTITIONS = 3
FLUSH_S = 60.0


@dataclass
class Flights:
    """Produces `days` in order. Only what is produced counts; a broker that is away gets it when it is back."""

    broker: str
    days: Sequence[Path]
    produced: int = 0
    departed: int = 0
    _credit: float = field(default=0.0, repr=False)
    _seen_s: float | None = field(default=None, repr=False)
    _errors: list[str] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker, "log_level": 4})
        admin.create_topics([NewTopic(FLIGHTS, PARTITIONS, 1)])[FLIGHTS].result()
        # Idempotent: a reply that a killed broker never sent does not make a record come twice.
        settings = {"bootstrap.servers": self.broker, "enable.idempotence": True, "linger.ms": 20}
        # It need not say that a killed broker is away.
        self._producer = Producer({**settings, "log_level": 2})

    def produce(self, days: int) -> None:
        """The next days, as many as there are left. Raises DemoError for a record that the broker refused."""
        for day in self.days[self.produced : self.produced + days]:
            rows = pl.read_parquet(day)
            moments = pl.col("scheduled_at", "departed_at").dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
            for record in rows.with_columns(moments).write_ndjson().encode().splitlines():
                self._producer.produce(FLIGHTS, record, on_delivery=self._delivered)
            self.departed += rows.height - rows["departed_at"].null_count()
            self.produced += 1
        self._producer.poll(0)
        self._raise_errors()

    def produce_at(self, days_per_second: float, now_s: float) -> None:
        """What has become due since the last call, at this pace. `now_s` is a monotonic clock's."""
        elapsed_s = 0.0 if self._seen_s is None else now_s - self._seen_s
        self._seen_s, self._credit = now_s, min(self._credit + elapsed_s * days_per_second, 10.0)
        due = int(self._credit)
        self._credit -= due
        self.produce(due)

    def finish(self) -> None:
        """The rest, until the broker has all of it. Raises DemoError where it does not take it."""
        self.produce(len(self.days))
        left = self._producer.flush(FLUSH_S)
        self._raise_errors()
        if left:
            raise DemoError(f"the broker has not taken all records. left={left}, seconds={FLUSH_S:.0f}")

    @property
    def done(self) -> bool:
        return self.produced == len(self.days)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._errors.append(str(error))

    def _raise_errors(self) -> None:
        if self._errors:
            raise DemoError(f"the broker has refused records: {len(self._errors)}, first={self._errors[0]}")
