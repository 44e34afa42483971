"""Nested values as texts in JSON, of which they are made again: where a step takes plain values alone."""

from typing import Any

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import Java

NESTED = ("array", "map", "struct", "variant")
_EXACT = ("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date")
"""Types whose values JSON has as they are. Times would lose what is below a millisecond."""


def has_exact_text(type_: Any) -> bool:
    """Whether a value of this type of Catalyst's is made again of its text, and equal values have equal texts."""
    name = str(type_.typeName())
    if name == "array":
        return has_exact_text(type_.elementType())
    if name == "struct":
        fields = list(type_.fields())
        names = {str(field.name()).casefold() for field in fields}
        return len(names) == len(fields) and all(has_exact_text(field.dataType()) for field in fields)
    return name in _EXACT or name.startswith("decimal")


def text_of(catalyst: Catalyst, value: Java) -> Java:
    """The text of an array or a struct; null of null. There is one zero and one NaN, as in GROUP BY."""
    return catalyst.json_of(catalyst.one_zero_within(value))


def value_of(catalyst: Catalyst, text: Java, type_: Any) -> Java:
    """The value of this type, from its text."""
    return catalyst.of_json(text, type_)


def values_of(catalyst: Catalyst, texts: Java, type_: Any) -> Java:
    """An array of values of this type, from an array of their texts, none of which is null."""
    whole = [catalyst.text("["), catalyst.joined_text(texts, catalyst.text(",")), catalyst.text("]")]
    return catalyst.of_json(catalyst.concatenated(whole), catalyst.list_of(type_))
