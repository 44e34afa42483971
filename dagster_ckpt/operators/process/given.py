"""Tables that the user's code hands over: each has the columns it must have, or an error says which is wrong."""

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import flat


def with_columns(given: object, schema: pa.Schema, where: str) -> pa.Table:
    """These columns of the table, one array each. `where` says which method, and of what: the end of the message.

    Raises `InvalidPipelineError` for a column that is missing, has another type, or a null it must not have.
    """
    if not isinstance(given, pa.Table):
        raise InvalidPipelineError(f"give a pyarrow.Table. given={type(given).__name__}, {where}")
    for name in schema.names:
        if (count := given.column_names.count(name)) != 1:
            problem = (
                "several columns have this name: rename all but one" if count else "this column is missing: add it"
            )
            raise InvalidPipelineError(f"{problem}. column={name}, columns={_listed(given.column_names)}, {where}")
    return pa.Table.from_arrays([_of_type(flat(given.column(f.name)), f, where) for f in schema], schema=schema)


def with_columns_alone(given: object, schema: pa.Schema, where: str) -> pa.Table:
    """The same of a table that has no other columns; their order is nothing."""
    table = with_columns(given, schema, where)
    if others := [name for name in _names(given) if name not in schema.names]:
        raise InvalidPipelineError(
            f"this column has no place here: leave it out. column={others[0]}, columns={_listed(schema.names)}, {where}"
        )
    return table


def of_schema(given: object, schema: pa.Schema, where: str) -> pa.Table:
    """The same of a table whose columns are in this order too."""
    table = with_columns_alone(given, schema, where)
    if _names(given) != schema.names:
        raise InvalidPipelineError(
            "the columns are not in the order of `output`: select them so. "
            f"columns={_listed(_names(given))}, output={_listed(schema.names)}, {where}"
        )
    return table


def _names(given: object) -> list[str]:
    assert isinstance(given, pa.Table), "it was found to be one"
    return list(given.column_names)


def _of_type(column: pa.Array, field: pa.Field, where: str) -> pa.Array:
    if column.type != field.type:
        raise InvalidPipelineError(
            f"this column has another type than was declared: cast it, or declare it so. column={field.name}, "
            f"type={column.type}, declared={field.type}, {where}"
        )
    if not field.nullable and column.null_count:
        raise InvalidPipelineError(
            f"this column was declared without nulls and has some: fill them, or declare it nullable. "
            f"column={field.name}, nulls={column.null_count}, {where}"
        )
    return column


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
