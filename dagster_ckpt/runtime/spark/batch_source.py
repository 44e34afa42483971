"""A stream's table, or its change log, as a Spark batch source: for tables too large for one process.

What is read is chosen once, when the DataFrame is made: all its tasks and all its actions read that. The tasks get the
store's address and the manifests, and each reads its share.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.change_columns import CHANGE_FIELDS
from dagster_ckpt.protocol.epochs.upstream import FORMAT, part_count
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.manifest.references import changes_alone, table_alone
from dagster_ckpt.protocol.transitions.renamed_columns import with_names_of
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema, to_spark_schema
from dagster_ckpt.runtime.spark.unseen_store import host_named
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.stores.address import StoreAddress, options_for
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.tables import Share, raw_changes, table_rows

BYTES_A_TASK = 32 << 20
"""About how much of a change log one task reads, unless `numPartitions` sets the number of tasks."""

STORE, STREAM, EPOCH, AS_OF = "store", "stream", "epoch", "asOf"
CHANGES_AFTER, CHANGES_UNTIL, COLUMNS, TASKS = "changesAfter", "changesUntil", "columns", "numPartitions"
VERSION = "version"
"""The version of the manifest that shows the epoch: `SparkReader` has found it before."""
NONCE = "nonce"
"""The epoch's nonce, likewise: a DataFrame may be read long after it was loaded."""
_OPTIONS = (STORE, STREAM, EPOCH, AS_OF, CHANGES_AFTER, CHANGES_UNTIL, COLUMNS, TASKS)


def batch_source(storage_options: Mapping[str, object]) -> type[DataSource]:
    """The data source. The storage options are in its closure: they hold secrets, and Spark shows options."""

    class Streams(DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            self._chosen = choose(options, storage_options)

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> StructType:
            return to_spark_schema(self._chosen.schema)

        def reader(self, schema: StructType) -> DataSourceReader:
            return ChosenReader(replace(self._chosen, schema=to_arrow_schema(schema)))

    # A class of a module that can be imported would be pickled by its name, and lose its closure.
    Streams.__module__ = "__main__"
    return Streams


@dataclass(frozen=True)
class Chosen:
    """What is read: the table of the one manifest, or, if `changes`, the change log of all the manifests' epochs."""

    address: StoreAddress
    stream: str
    manifests: tuple[Manifest, ...]
    changes: bool
    schema: pa.Schema
    tasks: int


def choose(options: Mapping[str, str], storage_options: Mapping[str, object]) -> Chosen:
    """What a reader's options choose, from what is in the store now; the case of option names does not matter.

    Raises `InvalidPipelineError` for an unknown stream, epoch, column or option, and for options that conflict.
    """
    given = {name.lower(): value for name, value in options.items()}
    unknown = given.keys() - {name.lower() for name in (*_OPTIONS, VERSION, NONCE)}
    missing = [name for name in (STORE, STREAM) if name not in given]
    if unknown or missing:
        raise InvalidPipelineError(
            f"{FORMAT} is read by the options {', '.join(_OPTIONS)}; the first two must be there. "
            f"unknown={sorted(unknown)}, missing={missing}"
        )
    url = given[STORE]
    address = StoreAddress(url, options_for(url, storage_options))
    history = CheckpointStore(address.url, address.options).stream(given[STREAM])
    tasks = _number(given, TASKS)
    if tasks == 0:
        raise InvalidPipelineError(f"at least one task must read. {TASKS}=0, stream={given[STREAM]!r}")
    of_changes = any(name.lower() in given for name in (CHANGES_AFTER, CHANGES_UNTIL))
    found = _changes(address, history, given) if of_changes else _table(address, history, given)
    found = found if tasks is None else replace(found, tasks=tasks)
    return found if COLUMNS not in given else replace(found, schema=_columns(found, given[COLUMNS]))


def _table(address: StoreAddress, history: StreamHistory, given: Mapping[str, str]) -> Chosen:
    epoch, version = _number(given, EPOCH), _number(given, VERSION)
    shown = None if version is None else history.find_version(Version(version))
    if shown is None or shown.epoch != epoch:
        shown = history.manifest(epoch, given.get(AS_OF.lower()))
    if given.get(NONCE) not in (None, shown.epoch_nonce):
        raise InvalidPipelineError(
            "the stream was restored from a backup since this table was loaded, and has another epoch of that number: "
            f"load it again. epoch={epoch} ({given[NONCE]}), there={shown.epoch} ({shown.epoch_nonce}), "
            f"stream={history.name!r}"
        )
    tasks = part_count(shown)
    return Chosen(
        address, history.name, (table_alone(shown),), changes=False, schema=shown.pipeline.output, tasks=tasks
    )


def _changes(address: StoreAddress, history: StreamHistory, given: Mapping[str, str]) -> Chosen:
    after, until = _number(given, CHANGES_AFTER), _number(given, CHANGES_UNTIL)
    if after is None or any(name.lower() in given for name in (EPOCH, AS_OF)):
        raise InvalidPipelineError(
            f"changes are those after an epoch: give {CHANGES_AFTER} (0: the stream's beginning), optionally "
            f"{CHANGES_UNTIL}, and no epoch of the table. stream={history.name!r}"
        )
    newest, following = history.epochs_after(after, until)
    size = sum(ref.bytes for manifest in following for ref in manifest.changes)
    bare = tuple(changes_alone(with_names_of(each, newest)) for each in following if each.changes)
    schema = pa.schema([*newest.pipeline.output, *CHANGE_FIELDS])
    return Chosen(address, history.name, bare, changes=True, schema=schema, tasks=size // BYTES_A_TASK + 1)


def _columns(found: Chosen, text: str) -> pa.Schema:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or any(name not in found.schema.names for name in names):
        raise InvalidPipelineError(
            f'unknown columns; pass a JSON list such as ["a", "b"]. columns={text}, there={found.schema.names}, '
            f"stream={found.stream!r}"
        )
    return pa.schema([found.schema.field(name) for name in names])


class ChosenReader(DataSourceReader):
    """Reads what was chosen, one share per task."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen

    def partitions(self) -> Sequence[InputPartition]:
        return [_Task(Share(number, self._chosen.tasks)) for number in range(self._chosen.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Task), "Spark passes what partitions() returned"
        chosen, clock = self._chosen, SystemClock()
        root = chosen.address.open()
        folder = stream_folder(root, chosen.stream)
        if chosen.changes:
            with host_named(folder):
                yield from raw_changes(folder, clock, chosen.manifests, chosen.schema, partition.share)
        else:
            [shown] = chosen.manifests
            files = with_ancestors(folder, root, shown.ancestors)
            with host_named(folder):
                yield from table_rows(files, clock, shown, chosen.schema, partition.share)


@dataclass(frozen=True)
class _Task(InputPartition):
    share: Share


def _number(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    if not value.isdecimal():
        raise InvalidPipelineError(f"this option is a number. {name}={value!r}, stream={given[STREAM]!r}")
    return int(value)
