"""`explain`: what a streaming asset will keep, before anything of it runs."""

import inspect
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.integration.dagster_names import stream_name_of
from dagster_ckpt.integration.declared.streaming_function import declared_key, of_asset
from dagster_ckpt.operators.explained.explanation import Explanation, explain_pipeline
from dagster_ckpt.operators.shared.checks.updating_checks import changes_schema
from dagster_ckpt.protocol.change_columns import CHANGE_FIELDS
from dagster_ckpt.protocol.epochs.upstream import FORMAT
from dagster_ckpt.protocol.manifest.manifest import Pipeline, SourceIdentity
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.runtime.declared.primary_key import with_primary_key
from dagster_ckpt.runtime.declared.sources import Reader
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_checks import plan_stream, reader_text
from dagster_ckpt.runtime.plans.direct_call import call_directly, local_session, stream_of_rows
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from dagster_ckpt.runtime.spark.no_max_file_age_session import NoMaxFileAgeSession
from dagster_ckpt.runtime.spark.session import open_session

_NAMED = "source"
"""The format of a declared source whose columns are given."""


def explain(
    asset: object,
    *,
    schemas: Mapping[str, pa.Schema] | None = None,
    keys: Mapping[str, Sequence[str]] | None = None,
    store: CheckpointStore | None = None,
    arguments: Mapping[str, object] | None = None,
    spark: SparkSession | None = None,
) -> Explanation:
    """What each step of a streaming asset reads and keeps, and what bounds that. Nothing runs, and nothing is written.

        print(explain(delay_by_airline, schemas={"flights": FLIGHTS, "airlines": AIRLINES}))

    `asset` is made by `@streaming_asset`, or a function that returns a `Stream`, a DataFrame or a query. The value has
    `steps`; its `str()` is what `dagster-ckpt explain` prints of the stream, without sizes.

    `schemas` has the columns of each parameter that is an upstream stream, and of each `source(name, reader)` that is
    not there yet; the readers of other sources are called. An upstream with a column `_change_type` changes, and `keys`
    then names its key columns, as in `testing.run_batches`. With a `store`, upstreams without a schema are those of
    their asset keys in that store. `arguments` are the parameters other than the session, by name. `spark` is the
    session to use; by default the active one, else a new local one.

    Raises `InvalidPipelineError` for an upstream without a schema, a schema without an upstream or source, and for an
    asset that cannot be kept up to date.
    """
    with tempfile.TemporaryDirectory(prefix="dagster-ckpt-explain-") as folder:
        session = _WithoutRows.beside(open_session(spark or local_session()), Path(folder), schemas or {})
        tables = _UpstreamTables(session, keys or {}, store, _streams_read_by(asset))
        function = _user_function(asset)
        name = stream_name_of(asset.key) if isinstance(asset, dg.AssetsDefinition) else function.__name__
        with naming(asset=name):
            stream = call_directly(name, function, session, arguments or {}, tables)
            stream = with_primary_key(stream, declared_key(asset))
        if unread := set(schemas or {}) - session.made.keys():
            raise InvalidPipelineError(
                "schemas were given for names that are neither a source nor an upstream of the asset. "
                f"names={sorted(unread)}"
            )
        planned = plan_stream(name, stream)
        pipeline, read_by = planned.dataflow.pipeline, "" if session.made else reader_text(planned.arrow_inputs(None))
        named = {f"file:{path}": source for path, source in session.made.values()}  # as Spark spells it
        found = explain_pipeline(
            replace(
                _with_sources(pipeline, named), before=tuple(_with_sources(each, named) for each in pipeline.before)
            )
        )
        return replace(found, ignored_watermarks=stream.all_ignored_watermarks, read_by=read_by)


class _WithoutRows(NoMaxFileAgeSession):
    """A stream's session in which empty folders take the place of upstreams, and of sources with a given schema."""

    folder: Path
    schemas: Mapping[str, pa.Schema]
    made: dict[str, tuple[Path, SourceIdentity]]

    @classmethod
    def beside(cls, session: SparkSession, folder: Path, schemas: Mapping[str, pa.Schema]) -> "_WithoutRows":
        made = cls(session.sparkContext, session._jsparkSession)  # noqa: SLF001  (the same session, read in another way)
        made.folder, made.schemas, made.made = folder, schemas, {}
        return made

    def read_declared(self, name: str, reader: Reader) -> DataFrame:
        if name not in self.schemas:
            return reader(self)
        return self.empty(name, self.schemas[name], SourceIdentity(_NAMED, name))

    def empty(self, name: str, schema: pa.Schema, source: SourceIdentity) -> DataFrame:
        """A stream of no rows with these columns, which stands for that source."""
        path, _ = self.made.setdefault(name, (self.folder / f"source-{len(self.made)}", source))
        path.mkdir(exist_ok=True)
        return self.readStream.schema(to_spark_schema(schema)).parquet(str(path))


@dataclass(frozen=True)
class _UpstreamTables:
    """The upstreams of an asset, by the names of their parameters: `streams` has the names of the streams."""

    session: _WithoutRows
    keys: Mapping[str, Sequence[str]]
    store: CheckpointStore | None
    streams: Mapping[str, str] = field(default_factory=dict)

    def frame(self, name: str) -> DataFrame:
        if name in self.session.schemas:
            return self._empty(name, self.session.schemas[name])
        return self._empty(name, pa.schema([*self._pipeline(name).output, *CHANGE_FIELDS]))

    def stream(self, name: str) -> Stream:
        if name in self.session.schemas:
            return stream_of_rows(name, self._empty(name, self.session.schemas[name]), self.keys.get(name))
        pipeline = self._pipeline(name)
        frame = self._empty(name, changes_schema(pipeline))
        if pipeline.appends:
            return Stream(frame, upstream=Upstream(name))
        return Stream(frame, upstream=Upstream(name, row_key(pipeline), changes=True))

    def _empty(self, name: str, schema: pa.Schema) -> DataFrame:
        return self.session.empty(name, schema, SourceIdentity(FORMAT, self._stream(name)))

    def _pipeline(self, name: str) -> Pipeline:
        if self.store is None:
            raise InvalidPipelineError(
                "the columns of an upstream are unknown: give them in schemas=, or the store that has the stream in "
                f"store=. parameter={name}"
            )
        return self.store.stream(self._stream(name)).manifest().pipeline

    def _stream(self, name: str) -> str:
        return self.streams.get(name, name)


def _with_sources(step: Pipeline, named: Mapping[str, SourceIdentity]) -> Pipeline:
    """The step with the sources for which empty folders stand."""
    return replace(
        step,
        inputs=tuple(
            replace(each, sources=tuple(named.get(source.address, source) for source in each.sources))
            for each in step.inputs
        ),
    )


def _streams_read_by(asset: object) -> Mapping[str, str]:
    """The stream of each parameter of an asset; a function's are named like its parameters."""
    if not isinstance(asset, dg.AssetsDefinition):
        return {}
    return {name: stream_name_of(key) for name, key in asset.keys_by_input_name.items()}


def _user_function(asset: object) -> Callable[..., object]:
    if inspect.isfunction(asset):
        return asset
    streaming = of_asset(asset)
    if streaming is None or streaming.delivery is not None:
        raise InvalidPipelineError(f"give a streaming asset, or a function that returns a Stream. got={asset!r}")
    return streaming.function
