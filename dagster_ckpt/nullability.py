"""What a nested type allows to be null within it.

Arrow and Spark let a field within a struct, an element of a list or a value of a map be declared as never null. Such a
promise holds only where the struct, list or map is there: where that is null, what it would have held is null too.
Arrow's casts and Parquet refuse that, so no schema of ours makes the promise.
"""

import pyarrow as pa


def nullable_within(type_: pa.DataType) -> pa.DataType:
    """The same type, of which all that it holds may be null, at any depth. A map's keys never are."""
    kinds = pa.types
    if kinds.is_struct(type_):
        return pa.struct([_nullable(field) for field in type_])
    if kinds.is_map(type_):
        key = type_.key_field.with_type(nullable_within(type_.key_type))
        return pa.map_(key, _nullable(type_.item_field), keys_sorted=type_.keys_sorted)
    if kinds.is_fixed_size_list(type_):
        return pa.list_(_nullable(type_.value_field), type_.list_size)
    for is_kind, make in (
        (kinds.is_list, pa.list_),
        (kinds.is_large_list, pa.large_list),
        (kinds.is_list_view, pa.list_view),
        (kinds.is_large_list_view, pa.large_list_view),
    ):
        if is_kind(type_):
            return make(_nullable(type_.value_field))
    return type_


def all_nullable_within(schema: pa.Schema) -> pa.Schema:
    """The same columns, of which all that nested ones hold may be null. Whether a column itself may be stays."""
    return pa.schema([field.with_type(nullable_within(field.type)) for field in schema], schema.metadata)


def differs_in_nulls_alone(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether the types are the same but for what within them may be null."""
    return bool(nullable_within(one) == nullable_within(other))


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_type(nullable_within(field.type)).with_nullable(True)
