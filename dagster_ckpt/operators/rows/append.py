"""The append-only stream: every input row once. It has no state; its change log is its table."""

from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.operators.operator import Changes, Origins, input_origins
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.net_changes import inserts
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

NAME = "append"


@dataclass(frozen=True)
class AppendOnly:
    """Rows in, the same rows out. Not an `Operator`: it needs no keys, hashes or state."""

    pipeline: Pipeline

    @classmethod
    def build(cls, source: InputSpec) -> "AppendOnly":
        """Check the input's columns. Raises `InvalidPipelineError`."""
        pipeline_checks.check_columns(source.schema)
        pipeline_checks.check_storable(source.schema)
        return cls(Pipeline(NAME, {}, (source,), keys=(), tables=(), output=source.schema, appends=True))

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "AppendOnly":
        """The same stream from its fingerprint."""
        return cls(pipeline)

    @property
    def origins(self) -> Origins:
        """The columns of the input, each as it is."""
        return input_origins(self.pipeline)

    def changes(self, rows: pa.Table) -> Changes:
        """The change log of an epoch with these input rows."""
        return inserts(rows)
