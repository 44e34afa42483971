"""The operator behind a table that is made of state."""

from dagster_ckpt.operators import AppendOnly, Operator, from_pipeline
from dagster_ckpt.protocol.manifest.manifest import Pipeline


def table_operator(pipeline: Pipeline) -> tuple[Operator, str]:
    """The operator of a stream whose table does not only grow, and the state table that this table is made of."""
    assert not pipeline.appends, "a table that only grows is made of its files"
    operator = from_pipeline(pipeline)
    assert not isinstance(operator, AppendOnly), "an append-only stream appends"
    assert operator.logged is not None, "a table that does not only grow is made of a state table"
    return operator, operator.logged
