"""Types that a column may get while rows written before stay readable: all their values fit into the new type."""

import pyarrow as pa

from dagster_ckpt.nullability import differs_in_nulls_alone


def widens(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether each value of `before` is one of `after`, at any depth.

    Integers may get more bits, floats too, decimals more digits on either side of the point; more may be null within a
    nested type. A map's keys stay. An integer does not become a float or a decimal: their state is another one.
    """
    if before == after and before.num_fields == 0:
        return True
    if before.num_fields == 0 or before.num_fields != after.num_fields or before.id != after.id:
        return _is_wider(before, after)
    kinds = pa.types
    if kinds.is_map(before):
        keys_stay = differs_in_nulls_alone(before.key_type, after.key_type) and before.keys_sorted == after.keys_sorted
        return keys_stay and all(
            _field_widens(getattr(before, each), getattr(after, each)) for each in ("key_field", "item_field")
        )
    if kinds.is_fixed_size_list(before) and before.list_size != after.list_size:
        return False
    fields = [(before.field(index), after.field(index)) for index in range(before.num_fields)]
    named_alike = not kinds.is_struct(before) or all(was.name == now.name for was, now in fields)
    return named_alike and all(_field_widens(was, now) for was, now in fields)


def _field_widens(before: pa.Field, after: pa.Field) -> bool:
    return (after.nullable or not before.nullable) and widens(before.type, after.type)


def _is_wider(before: pa.DataType, after: pa.DataType) -> bool:
    kinds = pa.types
    for of_kind in (kinds.is_signed_integer, kinds.is_unsigned_integer, kinds.is_floating):
        if of_kind(before):
            return bool(of_kind(after) and before.bit_width < after.bit_width)
    if kinds.is_decimal(before) and kinds.is_decimal(after):
        whole = after.precision - after.scale >= before.precision - before.scale
        return bool(whole and after.scale >= before.scale)
    return False
