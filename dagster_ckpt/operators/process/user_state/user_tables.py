"""Checks of tables from the user's code: each has the required columns, or an error names the wrong one."""

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import by_itself, flat
from dagster_ckpt.nullability import differs_in_nulls_alone


def with_columns(given: object, schema: pa.Schema, where: str) -> pa.Table:
    """These columns of the table, one array each. `where` names the method and the state, at the end of each message.

    The nullability within a nested column may differ from `schema` as long as the values have no such null. Raises
    `InvalidPipelineError` for a column that is missing, has another type, or has a null that is not allowed.
    """
    if not isinstance(given, pa.Table):
        raise InvalidPipelineError(f"give a pyarrow.Table. given={type(given).__name__}, {where}")
    for name in schema.names:
        if (count := given.column_names.count(name)) != 1:
            problem = (
                "several columns have this name: rename all but one" if count else "this column is missing: add it"
            )
            raise InvalidPipelineError(f"{problem}. column={name}, columns={_join_names(given.column_names)}, {where}")
    return pa.Table.from_arrays([_of_type(flat(given.column(f.name)), f, where) for f in schema], schema=schema)


def with_columns_alone(given: object, schema: pa.Schema, where: str) -> pa.Table:
    """As `with_columns`, for a table that has no other columns, in any order."""
    table = with_columns(given, schema, where)
    if others := [name for name in _names(given) if name not in schema.names]:
        raise InvalidPipelineError(
            "this column has no place here: leave it out. "
            f"column={others[0]}, columns={_join_names(schema.names)}, {where}"
        )
    return table


def of_schema(given: object, schema: pa.Schema, where: str) -> pa.Table:
    """As `with_columns_alone`, for a table whose columns are in this order."""
    table = with_columns_alone(given, schema, where)
    if _names(given) != schema.names:
        raise InvalidPipelineError(
            "the columns are not in the order of `output`: select them so. "
            f"columns={_join_names(_names(given))}, output={_join_names(schema.names)}, {where}"
        )
    return table


def _names(given: object) -> list[str]:
    assert isinstance(given, pa.Table), "with_columns has checked it"
    return list(given.column_names)


def _of_type(column: pa.Array, field: pa.Field, where: str) -> pa.Array:
    if not differs_in_nulls_alone(column.type, field.type):
        raise InvalidPipelineError(
            f"this column has another type than was declared: cast it, or declare it so. column={field.name}, "
            f"type={column.type}, declared={field.type}, {where}"
        )
    if not field.nullable and column.null_count:
        raise InvalidPipelineError(
            f"this column was declared without nulls and has some: fill them, or declare it nullable. "
            f"column={field.name}, nulls={column.null_count}, {where}"
        )
    if column.type == field.type:
        return column
    if (path := _undeclared_nulls(by_itself(column), field.type)) is not None:
        raise InvalidPipelineError(
            "what this column holds was declared without nulls and has some: fill them, or declare it nullable. "
            f"column={field.name}, within={path}, declared={field.type}, {where}"
        )
    return _redeclare(column, field)


def _undeclared_nulls(column: pa.Array, type_: pa.DataType) -> str | None:
    """The path within the column of a null that its type does not allow; None if there is none.

    Values below a null do not count.
    """
    values = by_itself(column.drop_null())
    if pa.types.is_struct(type_):
        parts = values.flatten()
    elif pa.types.is_map(type_):
        parts = [values.keys, values.items]
    else:
        parts = [values.flatten()] if type_.num_fields else []
    fields = [type_.key_field, type_.item_field] if pa.types.is_map(type_) else map(type_.field, range(len(parts)))
    for part, field in zip(parts, fields, strict=True):
        if part.null_count and not field.nullable:
            return str(field.name)
        if (below := _undeclared_nulls(part, field.type)) is not None:
            return f"{field.name}.{below}"
    return None


def _redeclare(column: pa.Array, field: pa.Field) -> pa.Array:
    """The same values in the field's type, which differs in nullability alone.

    A cast rejects nulls below a null; the bytes of a record batch do not depend on nullability.
    """
    data = pa.record_batch([column], names=[field.name]).serialize()
    return pa.ipc.read_record_batch(data, pa.schema([field])).column(0)


def _join_names(names: list[str]) -> str:
    return ", ".join(names) or "none"
