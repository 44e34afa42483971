"""A stream as a Spark source, in the Python processes that Spark starts for it.

Its offsets are `UpstreamPosition`s. In one process the reader plans, for each micro-batch, which epochs are new; in
Spark's workers it reads their changes. Both know the store's address and nothing else. The driver (`upstreams`)
reports what is wrong with an upstream: Spark keeps only the text of an error in these processes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition, decode
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema
from dagster_ckpt.runtime.upstreams.downstream import Downstream, Planned, Read
from dagster_ckpt.runtime.upstreams.upstream_rows import UpstreamRows

_EPOCHS_MAX = 2**31 - 1


def data_source(downstream: Downstream) -> type[DataSource]:
    """The data source for one session. The address is in its closure: it may hold secrets, and Spark shows options."""

    class UpstreamDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
            planned = Planned.parse(to_arrow_schema(schema), self.options["key"])
            return UpstreamReader(downstream, self.options["path"], Read(self.options["read"]), planned)

    # A class of a module that can be imported would be pickled by its name, and lose its closure.
    UpstreamDataSource.__module__ = "__main__"
    return UpstreamDataSource


class UpstreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the new epochs of one upstream. An epoch counts as one file in Spark's limits.

    The first offset is the empty stream. From there it reads the snapshot that the driver has pinned, part by part, and
    then the log.
    """

    def __init__(self, downstream: Downstream, stream: str, read: Read, planned: Planned) -> None:
        self._downstream = downstream
        self._rows = UpstreamRows(downstream.address, downstream.folder, stream, read, planned)
        self._until: Epoch | None = None

    # ---- in the process that plans

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (here and below: Spark's names)
        return _offset(self._rows.beginning())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxFiles(self._downstream.epochs_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._rows.log.newest().epoch

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        epochs_max = limit.max_files if isinstance(limit, ReadMaxFiles) else _EPOCHS_MAX
        limits = replace(self._downstream.limits, epochs_max=epochs_max)
        return _offset(self._rows.next_position(_position(start), limits, self._until))

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        shares = self._rows.shares(_position(start), _position(end))
        return [part for share in shares for part in share.split(self._downstream.tasks)]

    # ---- in Spark's workers

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._rows.rows(partition, self._rows.planned.columns)


def _position(offset: Mapping[str, Any]) -> UpstreamPosition:
    return decode(json.dumps(offset))


def _offset(position: UpstreamPosition) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(position.encode())
    return fields
