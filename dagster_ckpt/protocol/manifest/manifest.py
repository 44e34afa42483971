"""The manifest: the one immutable object whose creation commits an epoch.

A manifest is a value. `codec` turns it into bytes and back, `edits` makes its successor, `manifest_rules` checks that
one. Everything a later release needs is a field from the start, even if this release always writes the neutral value:
a change of format would cost users their state.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, TypeVar

import pyarrow as pa

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.protocol.object_names import fork_pin_name, name_in_stream, swap_pin_name

Entry = TypeVar("Entry")


class ManifestKind(StrEnum):
    """Why a manifest was created.

    `EPOCH` makes an epoch of new input, `SWAP` one with the table of another stream, which was built beside this one;
    `FORK` makes a stream's first. The others show an existing one.
    """

    OPEN = "open"
    EPOCH = "epoch"
    ROLLBACK = "rollback"
    RESHARD = "reshard"
    FORK = "fork"
    SWAP = "swap"

    @property
    def makes_epoch(self) -> bool:
        """Whether its manifest follows that of another epoch, and has a change log."""
        return self in (ManifestKind.EPOCH, ManifestKind.SWAP)


class SortKind(StrEnum):
    """What a state table's runs are sorted by: the 64-bit key hash, or event time."""

    HASH = "hash"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of event times in microseconds since the Unix epoch, both bounds inclusive."""

    least_us: int
    greatest_us: int


@dataclass(frozen=True, slots=True)
class RunRef:
    """One run (a sorted immutable state file) as a manifest names it.

    `path` is relative to the folder of the stream, or of `ancestor` if that is set. Readers see only rows whose hash is
    in `clip` and outside the merge range `[moved_lo, moved_hi)`, which compaction has moved down. The merge range is
    circular: if `moved_lo` is the greater one, it is all from there up and all below `moved_hi`; if both are equal,
    nothing was moved. A file may hold rows of several shards: each of them names it with a different clip (so a task
    writes one file for all its shards, and a reshard or fork copies nothing). After a reshard a shard may name it more
    than once; no two clips of a file overlap.

    `checksum` is the file's (see `lsm`), `hashes` the least and greatest hash in it. `times` are the least and greatest
    time in it (`StateTableSpec.time`), narrowed later: readers see no row below `least_us`, since those have expired.
    `rows`, `bytes` and `tombstones` count the whole file.
    """

    path: str
    rows: int
    bytes: int
    checksum: str
    epoch: Epoch
    level: int = 0
    tombstones: int = 0
    hashes: HashRange = HashRange()
    clip: HashRange = HashRange()
    moved_lo: int = 0
    moved_hi: int = 0
    times: TimeRange | None = None
    ancestor: StreamUuid | None = None

    @property
    def name(self) -> str:
        """The file's name in the stream, also for an ancestor's file: unique."""
        return name_in_stream(self.path, self.ancestor)

    @property
    def visible(self) -> tuple[HashRange, ...]:
        """The hashes that readers see, whether or not the file has any there; ascending, at most three ranges."""
        return self.clip.outside(self.moved_lo, self.moved_hi)

    def within(self, hashes: HashRange) -> "RunRef":
        """The reference clipped to these hashes."""
        return replace(self, clip=self.clip.intersect(hashes))


class ChangeKind(StrEnum):
    """Whether a change log is a separate file, or a run that already holds the epoch's changes."""

    FILE = "file"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class ChangeRef:
    """One file of the change log: what one shard changed in the stream's table in one epoch.

    In the list of an append-only stream's files it may also be a merged file. Then `epoch` is the newest that has rows
    in it, and `shard`, one of those that the stream had in that epoch, does not apply to the rows.
    """

    path: str
    rows: int
    bytes: int
    checksum: str
    epoch: Epoch
    shard: Shard
    kind: ChangeKind = ChangeKind.FILE
    times: TimeRange | None = None
    ancestor: StreamUuid | None = None

    @property
    def name(self) -> str:
        """The file's name in the stream, also for an ancestor's file: unique."""
        return name_in_stream(self.path, self.ancestor)


@dataclass(frozen=True, slots=True)
class IndexRef:
    """An immutable object below `index/` that holds part of a list too long for a manifest."""

    path: str
    entries: int
    bytes: int
    checksum: str
    level: int = 0
    ancestor: StreamUuid | None = None

    @property
    def name(self) -> str:
        """The file's name in the stream, also for an ancestor's file: unique."""
        return name_in_stream(self.path, self.ancestor)


@dataclass(frozen=True, slots=True)
class FileSeen:
    """One input file a file source has handed out: its address as Spark spells it, and its modification time.

    The address is redacted (`protocol.redaction`): a possible secret is never kept.
    """

    path: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class IndexedList(Generic[Entry]):
    """A growing list: the older entries in index objects, oldest first; the newest (`tail`) in the manifest."""

    index: tuple[IndexRef, ...] = ()
    tail: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The identity of a source across restarts: what it reads, never how it connects.

    `address` has no user, password or parameters (`protocol.redaction`). `options` are the sorted options that select
    what is read; `ordinal` numbers equal sources in plan order.
    """

    format: str
    address: str
    options: tuple[tuple[str, str], ...] = ()
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class FilesMoved:
    """The first `entries` of the files that a source has seen are now below `new` instead of `old`."""

    old: str
    new: str
    entries: int


@dataclass(frozen=True, slots=True)
class ColumnDigest:
    """A column of a table, and the sum of the hashes of its values, whatever their order."""

    name: str
    type: str
    digest: str


@dataclass(frozen=True, slots=True)
class InitialTable:
    """What a table was that a stream began with: its rows, the values of its columns, and the files it was read from.

    `paths` are the first addresses of the `files` files, redacted; none where the table is read from no files.
    """

    rows: int
    columns: tuple[ColumnDigest, ...] = ()
    files: int = 0
    paths: tuple[str, ...] = ()

    def differences(self, now: "InitialTable") -> list[str]:
        """How another reading differs, in words; empty where it has the same rows.

        Only columns that both have, of the same type, are compared: the code may read others by now.
        """
        then = {(each.name, each.type): each.digest for each in self.columns}
        changed = [each.name for each in now.columns if then.get((each.name, each.type), each.digest) != each.digest]
        if self.rows == now.rows and not changed:
            return []
        found = [f"rows={self.rows} then, {now.rows} now"]
        if self.files or now.files:
            found.append(f"files={self.files} then, {now.files} now")
        if self.files == len(self.paths) and (more := [path for path in now.paths if path not in self.paths]):
            found.append(f"new_files={more}")
        return found if self.rows != now.rows else [*found, f"changed_columns={changed}"]


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """How far one source has been read.

    `current` and `previous` are the source's offset JSON (None: no position yet); `initial` is the text of the source's
    initial-offset log, if it keeps one; `files` are those that a file source has seen, under the addresses that they
    had then; `moved` lists, oldest first, where those are now. `topics` has Kafka's id of each topic that was read, by
    name: a topic that was deleted and created again has another. `after_table`: a table's rows came before those of the
    source. `table` is what that table was: also at epoch 0 after it, since it will be read again there.
    """

    source: SourceIdentity
    current: str | None = None
    previous: str | None = None
    initial: str | None = None
    files: IndexedList[FileSeen] = field(default_factory=IndexedList)
    moved: tuple[FilesMoved, ...] = ()
    topics: tuple[tuple[str, str], ...] = ()
    after_table: bool = False
    table: InitialTable | None = None


@dataclass(frozen=True)
class StateTableSpec:
    """One state table: its columns, which of them are the key, and what its runs are sorted by.

    `time` is the column, a timestamp in microseconds, by which its rows expire; None: they never do. The time of a key
    never decreases. A table sorted by time has one, and the hashes of its runs are times: microseconds plus 2**63.
    """

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    sort: SortKind = SortKind.HASH
    time: str | None = None


@dataclass(frozen=True)
class InputSpec:
    """One input of a step: what it reads and the columns it hands to the operator.

    It reads sources, or the changes of an earlier step: that of the number `step`. Their watermark is `behind_us`
    behind that of the earlier step. `work` is the text of what a query has Spark do with the rows before the operator
    gets them; empty where it does nothing, or where no query says so. `columns` has those that have another name in the
    code: each with the name that it has here, then that one.
    """

    sources: tuple[SourceIdentity, ...]
    schema: pa.Schema
    step: int | None = None
    behind_us: int = 0
    work: str = ""
    columns: tuple[tuple[str, str], ...] = ()


DELIVERY = "delivery"
"""The operator in the manifests of a delivery."""

KEPT_TABLE = "table"
"""The state table, the first of its step, with the rows of a last step that keeps none by itself."""

ROWS_TABLE = "rows"
"""The state table, the first of its step, with the rows of a step that keeps a table although it has a `ROW_KEY`."""

ROW_KEY = "row_key"
"""The parameter of a step that says what, with its keys, identifies a row of the output: columns, or None: nothing."""


@dataclass(frozen=True)
class Pipeline:
    """The fingerprint of operator and state: what must stay the same for the state to be readable.

    It is that of the stream's last step, and has those before it. `operator` is the operator's name and `parameters`
    its options as plain JSON values: enough to read the stream's table without the user's code
    (`operators.from_pipeline`). `appends`: the stream's table is append-only, and has all rows of its change logs;
    otherwise it is made from one of the state tables. `before` are the steps before the last, each after those that it
    reads; they have none before themselves.

    `columns` has, for each column of the operator's output, the name that it has in the stream's table. `output` then
    has these names, in the table's order. Without `columns` the output is the operator's as it is.
    """

    operator: str
    parameters: dict[str, object]
    inputs: tuple[InputSpec, ...]
    keys: tuple[str, ...]
    tables: tuple[StateTableSpec, ...]
    output: pa.Schema
    appends: bool = False
    before: tuple["Pipeline", ...] = ()
    columns: tuple[tuple[str, str], ...] = ()

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns as the table has them."""
        return tuple(map(self.name_of, self.keys))

    def name_of(self, column: str) -> str:
        """The name that a column of the operator has in the table."""
        return next((name for own, name in self.columns if own == column), column)

    @property
    def own(self) -> "Pipeline":
        """The same with the operator's output as it is."""
        if not self.columns:
            return self
        fields = [self.output.field(name).with_name(own) for own, name in self.columns]
        return replace(self, output=pa.schema(fields), columns=())

    @property
    def steps(self) -> tuple["Pipeline", ...]:
        """All steps, each as a pipeline of its own, the last one after all others."""
        return (*self.before, replace(self, before=()))

    @property
    def source_inputs(self) -> tuple[InputSpec, ...]:
        """The inputs that read sources, of all steps in order: the stream's inputs."""
        return tuple(each for step in self.steps for each in step.inputs if each.step is None)

    @property
    def input_places(self) -> tuple[tuple[int, int], ...]:
        """The step of each input and its number in it: those of `source_inputs`, then those that read a step."""
        steps = (*self.before, self)
        places = [(number, each) for number, step in enumerate(steps) for each in range(len(step.inputs))]
        return tuple(sorted(places, key=lambda place: steps[place[0]].inputs[place[1]].step is not None))

    @property
    def all_tables(self) -> tuple[StateTableSpec, ...]:
        """The state tables of all steps, under the names that `Manifest.runs` has."""
        of_steps = enumerate((*self.before, self))
        return tuple(
            replace(spec, name=self.name_in_runs(number, spec.name))
            for number, step in of_steps
            for spec in step.tables
        )

    def inputs_of_stream(self, step: int) -> tuple[int | None, ...]:
        """For each input of a step its number among `source_inputs`; None where it reads an earlier step."""
        first = sum(each.step is None for before in self.before[:step] for each in before.inputs)
        numbers = iter(range(first, first + len(self.steps[step].inputs)))
        return tuple(next(numbers) if each.step is None else None for each in self.steps[step].inputs)

    def behind_us(self, step: int) -> int:
        """How far a step's watermark is behind the stream's: as far as the slowest of its inputs."""
        inputs = self.steps[step].inputs
        return max((self.behind_us(each.step) + each.behind_us for each in inputs if each.step is not None), default=0)

    def name_in_runs(self, step: int, table: str) -> str:
        """The name in `Manifest.runs` of a state table of a step: that of the last step's is its own."""
        return table if step == len(self.before) else f"{step}.{table}"

    @property
    def delivers(self) -> bool:
        """Whether it is a delivery: its rows are in a destination, and its manifests say how far that has come."""
        return self.operator == DELIVERY

    @property
    def shuffles(self) -> bool:
        """Whether a row's shard follows from its key. Without keys, all rows of a step with state have the same."""
        return bool(self.keys or self.tables)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who may open a stream: the Dagster instance's run-storage id and the asset key. `location` is information."""

    instance: str
    asset_key: str
    location: str = ""


@dataclass(frozen=True, slots=True)
class Consumed:
    """How far an upstream stream has been read. `nonce` is the epoch's: see `Manifest.epoch_nonce`."""

    stream: str
    uuid: StreamUuid
    epoch: Epoch
    nonce: Nonce | None = None


@dataclass(frozen=True, slots=True)
class SinkMark:
    """The newest epoch a sink has taken."""

    sink: str
    epoch: Epoch
    version: Version


@dataclass(frozen=True, slots=True)
class Handover:
    """The epoch in which a rebuilt stream took over, and the last steps before and after, with their columns alone.

    Each has names of its own inside. Readers, who go on, know a column by the name that both have for it in the table.
    """

    epoch: Epoch
    before: Pipeline
    after: Pipeline


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A stream whose files this one may name, and the epoch that was taken from it.

    `swapped`: it was built beside this one and took its place, so the pin that keeps its files is one of several.
    `handover` says when and with which columns.
    """

    uuid: StreamUuid
    stream: str
    epoch: Epoch
    swapped: bool = False
    handover: Handover | None = None

    def pin_of(self, stream: StreamUuid) -> str:
        """The name of the pin in the ancestor's folder that keeps its files for the stream which has this ancestor."""
        return swap_pin_name(stream, self.epoch) if self.swapped else fork_pin_name(stream)


class BackfillStatus(StrEnum):
    """Whether a stream's table is complete, or still being filled from a snapshot of its upstream."""

    COMPLETE = "complete"
    CREATING = "creating"


@dataclass(frozen=True, slots=True)
class Backfill:
    """The progress of a snapshot backfill."""

    status: BackfillStatus = BackfillStatus.COMPLETE
    position: str | None = None


class ReadBy(StrEnum):
    """Who has read the rows of an epoch from its sources. The rows, and all that is counted of them, are the same."""

    SPARK = "spark"
    TASKS = "tasks"
    """Tasks of Spark's, by Arrow."""
    DRIVER = "driver"
    """The driver, which has done all work of the epoch without a job of Spark's."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the shown epoch did, what the stream holds after it (`state_...`), and the totals since it began.

    `merged_rows` were written by compaction, or by merging files of an append-only stream. `stall_ms` is how long the
    intake of rows waited for compaction because the depth was too great: of all tasks the longest, 0 if none waited.
    `table_rows` is None where it is not known: see `Manifest.table_rows`. `late_rows_by_input` are the total late rows
    of each input of several: see `Manifest.late_rows_of`. `read_by` says who has read the rows; None where that is
    not known, or there was nothing to read.
    """

    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    epoch_ms: int = 0
    change_bytes: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    total_rows_in: int = 0
    total_epochs: int = 0
    merged_rows: int = 0
    stall_ms: int = 0
    total_rows_out: int = 0
    total_late_rows: int = 0
    table_rows: int | None = 0
    late_rows_by_input: tuple[int, ...] = ()
    read_by: ReadBy | None = None


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one of several steps did in the shown epoch.

    `rows_in` came from sources and earlier steps, `rows_out` are its changes; an update is two of them. `milliseconds`
    is the time of its slowest task, 0 if no task worked.
    """

    rows_in: int
    rows_out: int
    late_rows: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class ShardTime:
    """How long a shard took in the shown epoch, on which host, and how many rows it got.

    The time is that of the task, which processes all its shards together. `step` is the number of its step.
    """

    shard: Shard
    host: str
    milliseconds: int
    rows_in: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Retained:
    """An epoch that can be read, the manifest that shows it and when it was committed (ms since the Unix epoch)."""

    epoch: Epoch
    version: Version
    time_ms: int


@dataclass(frozen=True, slots=True)
class EpochRange:
    """Epochs `first <= epoch <= last`."""

    first: Epoch
    last: Epoch


ABANDONED_MAX = 1000
"""The most ranges of abandoned epochs in a manifest."""


@dataclass(frozen=True)
class Manifest:
    """One complete snapshot of a stream: no listing and no other object is needed to know what exists.

    `runs[table][shard]` are the shard's runs, newest first. `changes` is the change log of the shown epoch alone;
    `files` all files of an append-only table: those of its change logs, or what they were merged into, in the order in
    which the rows came. `time_ms` is information. `rollbacks` are the root Dagster runs whose `from_epoch` was
    honoured, newest last. `watermark_us` is for the next epoch; `harvested_us` is the watermark that the newest epoch
    with work had, up to which rows were emitted. If they differ, rows may be due. `checkpoint_interval_ms` is the time
    between two epochs in the run that made the shown one, None if each micro-batch is one; `slowest_shards` are those
    that took longest in it, slowest first. `steps` are what each of several steps did in it, none for a
    stream of one. `shown_nonce` is the nonce of the manifest that made the shown epoch, where another one did.
    `functions` has a digest of the code of each of the user's functions that made the shown epoch, by
    name: advice, which nothing must match.
    """

    version: Version
    kind: ManifestKind
    epoch: Epoch
    term: Term
    nonce: Nonce
    time_ms: int
    stream: str
    uuid: StreamUuid
    owner: Owner
    pipeline: Pipeline
    shards: int
    parent: Version | None = None
    parent_nonce: Nonce | None = None
    batch_id: int | None = None
    runs: dict[str, tuple[tuple[RunRef, ...], ...]] = field(default_factory=dict)
    changes: tuple[ChangeRef, ...] = ()
    files: IndexedList[ChangeRef] = field(default_factory=IndexedList)
    watermark_us: int | None = None
    event_times_us: tuple[int | None, ...] = ()
    sources: tuple[SourcePosition, ...] = ()
    consumed: tuple[Consumed, ...] = ()
    sinks: tuple[SinkMark, ...] = ()
    ancestors: tuple[Ancestor, ...] = ()
    backfill: Backfill = Backfill()
    statistics: Statistics = Statistics()
    retained: tuple[Retained, ...] = ()
    abandoned: tuple[EpochRange, ...] = ()
    rollbacks: tuple[str, ...] = ()
    harvested_us: int | None = None
    checkpoint_interval_ms: int | None = None
    slowest_shards: tuple[ShardTime, ...] = ()
    steps: tuple[StepWork, ...] = ()
    shown_nonce: Nonce | None = None
    functions: tuple[tuple[str, str], ...] = ()

    @property
    def epoch_nonce(self) -> Nonce | None:
        """The nonce of the manifest that made the shown epoch: it identifies the epoch, and all that is before it.

        A number alone does not: a stream that was restored from a backup reaches it again. None for epoch 0.
        """
        return self.nonce if Epoch(self.version) == self.epoch else self.shown_nonce

    @property
    def table_rows(self) -> int | None:
        """The rows of the stream's table; None where it is not known.

        For a delivery: the rows of the table in its destination, as far as they are its own.
        """
        counts = self.statistics
        if self.pipeline.delivers:
            return counts.table_rows or None
        if self.pipeline.appends:
            return counts.total_rows_out
        return counts.table_rows

    def work_of(self, step: int) -> StepWork | None:
        """What one of several steps did in the shown epoch; None where another pipeline made it."""
        return self.steps[step] if len(self.steps) == len(self.pipeline.steps) else None

    def late_rows_of(self, number: int) -> int:
        """The late rows of one input since the stream began."""
        counts = self.statistics
        return counts.late_rows_by_input[number] if counts.late_rows_by_input else counts.total_late_rows
