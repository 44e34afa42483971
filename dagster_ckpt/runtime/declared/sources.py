"""The sources of a stream: the identity of each across restarts, and how far it was read."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.protocol.epochs.topic_offsets import FORMAT as KAFKA
from dagster_ckpt.protocol.epochs.upstream import FORMAT as UPSTREAM
from dagster_ckpt.protocol.manifest.manifest import Manifest, SourceIdentity, SourcePosition
from dagster_ckpt.protocol.redaction import redacted_address, redacted_folder
from dagster_ckpt.protocol.transitions.source_moves import Moves
from dagster_ckpt.runtime.catalyst.query_plan import Leaf, source_options
from dagster_ckpt.runtime.spark.jvm import java_class

_CHOOSING = {
    UPSTREAM: ("read",),
    KAFKA: ("subscribe", "subscribepattern", "assign"),
    "rate": ("rowspersecond", "rampuptime"),
    "rate-micro-batch": ("rowsperbatch", "starttimestamp"),
}
"""The options that select what a source reads, by its format. A source of an unknown format is identified by its
address alone: any of its options could be a secret. How a source is reached is never included: brokers move."""
_STARTING_TIMES = ("startingtimestamp", "startingoffsetsbytimestamp")
"""Kafka's options that count before `startingOffsets`."""

_CHOOSING_FILES = ("pathglobfilter", "recursivefilelookup", "filenameonly")
_BROKERS = {KAFKA: "kafka.bootstrap.servers"}
"""How to reach a source that is identified by its options: the address counts only where two have equal options."""

_NOT_REPLAYABLE = ("socket", "textsocket")


_URL = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_BROKER_LIST = re.compile(r"[^/]+:\d+(,|$)")
_PATTERN = re.compile(r"[*?\[\]{}]")


@dataclass(frozen=True)
class KafkaOptions:
    """How a Kafka source is reached, by Kafka's own names and with secrets, so it is never written anywhere.

    `fails_on_loss` is Spark's `failOnDataLoss`. `group` is the consumer group to which the committed offsets are
    written too (`commitGroupId`), for tools that look there; empty: none. `begins_at_end`: a stream that has read
    nothing begins at the end of the topics, as Spark does without `startingOffsets`.
    """

    connection: tuple[tuple[str, str], ...] = field(repr=False)
    fails_on_loss: bool = True
    group: str = ""
    begins_at_end: bool = False

    @property
    def brokers(self) -> str:
        """The brokers that the user named."""
        return dict(self.connection).get("bootstrap.servers", "")


@dataclass(frozen=True)
class StreamSource:
    """One source of a running plan.

    `number` is its folder below `sources/` in Spark's checkpoint, `lines` its places in Spark's offset log (a plan that
    uses a source twice writes its offset twice). A file source keeps its positions as the files it has seen.
    `path` is their common address as it was given, with secrets: it is never written anywhere.
    """

    identity: SourceIdentity
    number: int
    lines: tuple[int, ...]
    reads_files: bool
    path: str = field(default="", repr=False)
    kafka: KafkaOptions | None = None

    @property
    def begins_at_end(self) -> bool:
        """Whether a stream that has read nothing of it begins at its end."""
        return self.kafka is not None and self.kafka.begins_at_end


def identify_sources(asset: str, session: SparkSession, leaves: Sequence[Leaf]) -> tuple[StreamSource, ...]:
    """The distinct sources of a plan, in order of first use.

    Raises `InvalidPipelineError` for one whose rows could not be read again after a crash.
    """
    read = {leaf.number: _source(asset, session, leaf) for leaf in reversed(leaves)}
    unique = _unique_by_options([source.identity for source in read.values()])
    found: dict[int, StreamSource] = {}
    for line, leaf in enumerate(leaves):
        if leaf.number in found:
            twin = found[leaf.number]
            found[leaf.number] = replace(twin, lines=(*twin.lines, line))
            continue
        source = replace(read[leaf.number], lines=(line,))
        if source.identity in unique:
            source = replace(source, identity=replace(source.identity, address=""))
        ordinal = sum(replace(other.identity, ordinal=0) == source.identity for other in found.values())
        found[leaf.number] = replace(source, identity=replace(source.identity, ordinal=ordinal))
    return tuple(found.values())


def _unique_by_options(identities: Sequence[SourceIdentity]) -> set[SourceIdentity]:
    """Those that their options alone identify: two clusters may have topics of one name."""
    reached: dict[SourceIdentity, set[str]] = {}
    for identity in identities:
        if identity.format in _BROKERS:
            reached.setdefault(replace(identity, address=""), set()).add(identity.address)
    alone = {identity for identity, addresses in reached.items() if len(addresses) == 1}
    return {identity for identity in identities if replace(identity, address="") in alone}


def positions_by_source(sources: Sequence[StreamSource], manifest: Manifest) -> tuple[SourcePosition, ...]:
    """The manifest's position of each source, in the plan's order.

    Raises `IncompatibleStateError` where the stream has read other sources than these. At epoch 0 it has read none:
    after a rollback there, the manifest has only the sources' initial positions.
    """
    known = {position.source: position for position in manifest.sources}
    wanted = [source.identity for source in sources]
    if known and manifest.epoch != EMPTY and known.keys() != set(wanted):
        gone = [source_text(identity) for identity in known if identity not in wanted]
        new = [source_text(identity) for identity in wanted if identity not in known]
        raise IncompatibleStateError(
            'the stream\'s inputs are not those its state was made from: restore them; say moved={"old": "new"} where '
            "a folder or a bucket has moved; or start again with rollback(0), or with fork(..., epoch=0) beside it. "
            f"gone={gone}, new={new}"
        )
    return tuple(known.get(identity, SourcePosition(identity)) for identity in wanted)


def spell_moves(asset: str, session: SparkSession, moved: Mapping[str, str]) -> Moves:
    """The user's old and new addresses, spelled as in identities.

    Raises `InvalidPipelineError` for a pattern in place of a folder.
    """
    for address in (*moved, *moved.values()):
        if _PATTERN.search(address):
            raise InvalidPipelineError(
                f"moved says where a folder was and is now, by their addresses: leave the pattern out. asset={asset}, "
                f"address={redacted_folder(address)}"
            )
    return tuple((_spelling(session, old), _spelling(session, new)) for old, new in moved.items())


def spark_spelling(session: SparkSession, address: str) -> str:
    """An address as Spark spells those of files: some characters of a path are encoded."""
    return str(java_class(session, "org.apache.hadoop.fs.Path")(address).toUri().toString())


def _spelling(session: SparkSession, address: str) -> str:
    if _BROKER_LIST.match(address):
        return address
    whole = address if _URL.match(address) else _absolute_path(session, address)
    return re.sub("^file:/+", "file:/", redacted_folder(whole)).rstrip("/")


def _source(asset: str, session: SparkSession, leaf: Leaf) -> StreamSource:
    found = source_options(leaf)
    name, options = found.format, found.options
    if name in _NOT_REPLAYABLE:
        raise InvalidPipelineError(
            "a socket cannot be read again after a crash: read from files, Kafka or another source that can. "
            f"asset={asset}, source={name}"
        )
    if found.reads_files and options.get("cleansource", "off").lower() != "off":
        raise InvalidPipelineError(
            "cleanSource would remove files that an older epoch still needs to be read again: leave the option out. "
            f"asset={asset}, cleanSource={options['cleansource']}"
        )
    chosen = _CHOOSING_FILES if found.reads_files else _CHOOSING.get(name, ())
    kept = tuple(sorted((key, options[key]) for key in chosen if key in options))
    if found.reads_files:
        path = _absolute_path(session, options["path"])
        return StreamSource(
            SourceIdentity(name, redacted_folder(path), kept), leaf.number, (), reads_files=True, path=path
        )
    address = redacted_address(options.get(_BROKERS.get(name, "path"), ""))
    kafka = _kafka_options(options) if name == KAFKA else None
    return StreamSource(SourceIdentity(name, address, kept), leaf.number, (), reads_files=False, kafka=kafka)


def _kafka_options(options: Mapping[str, str]) -> KafkaOptions:
    prefix = "kafka."
    return KafkaOptions(
        connection=tuple((key.removeprefix(prefix), options[key]) for key in sorted(options) if key.startswith(prefix)),
        fails_on_loss=options.get("failondataloss", "true").lower() == "true",
        group=options.get("commitgroupid", ""),
        begins_at_end=not any(name in options for name in _STARTING_TIMES)
        and options.get("startingoffsets", "latest").lower() == "latest",
    )


def _absolute_path(session: SparkSession, path: str) -> str:
    """The path, fully qualified by Hadoop: a relative one must not be another source in another working folder."""
    hadoop_path = java_class(session, "org.apache.hadoop.fs.Path")(path)
    file_system = hadoop_path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
    return str(file_system.makeQualified(hadoop_path).toString())


def source_text(identity: SourceIdentity) -> str:
    """The source as errors name it: `kafka subscribe=departures`."""
    options = ", ".join(f"{key}={value}" for key, value in identity.options)
    return " ".join(filter(None, (identity.format, identity.address, options)))


Reader = Callable[[SparkSession], DataFrame]


@runtime_checkable
class ReadsDeclared(Protocol):
    """A session that replaces the readers of declared sources."""

    def read_declared(self, name: str, reader: Reader) -> DataFrame: ...


@dataclass(frozen=True)
class DeclaredSource:
    """A source with a name. Call it with the asset's session to read it."""

    name: str
    reader: Reader

    def __call__(self, spark: SparkSession) -> DataFrame:
        if isinstance(spark, ReadsDeclared):
            return spark.read_declared(self.name, self.reader)
        return self.reader(spark)


def source(name: str, reader: Reader) -> DeclaredSource:
    """Declare a named source for streaming assets.

        departures = source("departures", lambda spark: spark.readStream.schema(SCHEMA).parquet("data/departures"))

    An asset calls it with its session: `Stream(departures(spark))`. `testing.run_batches` replaces it, by name, with a
    test's batches.
    """
    return DeclaredSource(name, reader)
