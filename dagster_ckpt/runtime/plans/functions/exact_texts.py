"""Nested values as texts in JSON, of which they are made again: where a step takes plain values alone."""

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import Java, SparkType

NESTED = ("array", "map", "struct", "variant")
_EXACT = ("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date")
"""Types whose values JSON has as they are. Times would lose what is below a millisecond."""


def has_exact_text(type_: SparkType) -> bool:
    """Whether a value of this type is made again of its text, and equal values have equal texts."""
    if type_.element is not None:
        return has_exact_text(type_.element)
    if type_.name == "struct":
        names = {name.casefold() for name, _ in type_.fields}
        return len(names) == len(type_.fields) and all(has_exact_text(each) for _, each in type_.fields)
    return type_.name in _EXACT or type_.name.startswith("decimal")


def text_of(catalyst: Catalyst, value: Java) -> Java:
    """The text of an array or a struct; null of null. There is one zero and one NaN, as in GROUP BY."""
    return catalyst.convert.json_of(catalyst.convert.one_zero_within(value))


def value_of(catalyst: Catalyst, text: Java, type_: SparkType) -> Java:
    """The value of this type, from its text."""
    return catalyst.convert.of_json(text, type_)


def values_of(catalyst: Catalyst, texts: Java, type_: SparkType) -> Java:
    """An array of values of this type, from an array of their texts, none of which is null."""
    whole = [catalyst.make.text("["), catalyst.make.join_text(texts, catalyst.make.text(",")), catalyst.make.text("]")]
    return catalyst.convert.list_of_json(catalyst.make.concat(whole), type_)
