"""Codecs between frozen values and JSON, composed of small ones: each names its fields once, for both directions.

`decode` trusts nothing: a value of another type, a missing field or an impossible number is a `ValueError` that names
the place.
"""

import dataclasses
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Member = TypeVar("Member", bound=StrEnum)
Json = Any
"""What the json module reads and writes."""


class UnknownFieldError(ValueError):
    """A field unknown to this release: a newer one wrote it, and ignoring it would lose information."""


def _same(value: Json) -> Json:
    return value


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How a value is written as JSON and read back: `decode(encode(value)) == value`.

    `decode_all` and `encode_all` do the same with many values at once, faster. None: there is no faster way.
    """

    decode: Callable[[Json], T]
    encode: Callable[[T], Json] = _same
    decode_all: Callable[[list[str]], list[T]] | None = None
    encode_all: Callable[[list[Any]], list[Json]] | None = None


@dataclass(frozen=True, slots=True)
class Record(Generic[T]):
    """A dataclass and the codec of each of its fields.

    `absent` has the fields that are left out where they have this value, as JSON: so a later release can add a field,
    and an older one still reads what has no need of it. In `columns` these are columns that have that value in every
    record. A field that a reader does not know must be understood, unless its name begins with an underscore: such a
    field is advice, which a reader skips.

    What is read takes room in proportion to its text, whatever its numbers say: a count is that of values in the text.
    """

    type: type[T]
    fields: Mapping[str, Codec[Any]]
    absent: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [field.name for field in dataclasses.fields(self.type)]  # type: ignore[arg-type]
        assert names == list(self.fields), f"each field needs its codec, in order. type={self.type.__name__}"
        assert self.absent.keys() <= self.fields.keys(), f"only a field can be absent. type={self.type.__name__}"

    def codec(self) -> Codec[T]:
        """One value: an object with these fields; those in `absent` may be left out."""
        writers = [(name, codec.encode) for name, codec in self.fields.items()]
        readers = [(name, codec.decode) for name, codec in self.fields.items()]
        absent = self.absent

        def encode(value: T) -> Json:
            written = {name: write(getattr(value, name)) for name, write in writers}
            return {name: json for name, json in written.items() if name not in absent or json != absent[name]}

        def decode(value: Json) -> T:
            fields, values = _exactly(self.fields, {**absent, **_expect(dict, value)}), []
            for name, read in readers:
                try:
                    values.append(read(fields[name]))
                except ValueError as error:
                    raise _error_in(name, error) from error
            return self.type(*values)

        return Codec(decode, encode)

    def lists(self, value: Json) -> dict[str, list[Any]]:
        """Read what `columns` wrote as a list for each field, without making values."""
        fields, count = self._columns_of(value)
        return {name: list(_decoded_column(name, codec, fields[name], count)) for name, codec in self.fields.items()}

    def columns(self, values_max: int | None = None) -> Codec[tuple[T, ...]]:
        """Many values, a column for each field: small and fast to read. A constant column is written as one value.

        More than `values_max` values cannot be read.
        """
        absent: dict[str, Sequence[Json]] = {name: ([], {"all": json}) for name, json in self.absent.items()}

        def encode(values: tuple[T, ...]) -> Json:
            columns = {name: _column(codec, name, values) for name, codec in self.fields.items()}
            if len(values) > _ALIKE_MAX and all(type(json) is dict for json in columns.values()):
                first = next(iter(columns))
                columns[first] = [columns[first]["all"]] * len(values)
            written = {name: json for name, json in columns.items() if json not in absent.get(name, ())}
            return {"count": len(values), **written}

        def decode(value: Json) -> tuple[T, ...]:
            fields, count = self._columns_of(value)
            if values_max is not None and count > values_max:
                raise ValueError(f"count: expected at most {values_max} values, found {count}")
            columns = [_decoded_column(name, codec, fields[name], count) for name, codec in self.fields.items()]
            return tuple(map(self.type, *columns))

        return Codec(decode, encode)

    def _columns_of(self, value: Json) -> tuple[dict[str, Json], int]:
        """The columns that were written, with those that may be absent, and how many values each has."""
        absent = {name: {"all": json} for name, json in self.absent.items()}
        fields = _exactly({"count": COUNT, **self.fields}, {**absent, **_expect(dict, value)})
        count = _decode_field("count", COUNT, fields["count"])
        if count > _ALIKE_MAX and all(type(fields[name]) is dict for name in self.fields):
            raise ValueError(f"count: {count} values, of which none is written out")
        return fields, count


def _expect(kind: type[T], value: Json) -> T:
    # Not isinstance: to Python True is an int.
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


_INT64 = range(-(1 << 63), 1 << 63)
_COUNTS = range(1 << 63)


def _in(allowed: range, value: Json) -> int:
    if _expect(int, value) not in allowed:
        raise ValueError(f"expected a number from {allowed[0]} to {allowed[-1]}, found {value}")
    return int(value)


def up_to(greatest: int) -> Codec[int]:
    """A count that is at most so large."""
    return Codec(partial(_in, range(greatest + 1)))


TEXT: Codec[str] = Codec(partial(_expect, str))
WHOLE: Codec[int] = Codec(partial(_in, _INT64))
COUNT: Codec[int] = Codec(partial(_in, _COUNTS))
BOOLEAN: Codec[bool] = Codec(partial(_expect, bool))


def texts(decode: Callable[[list[str]], list[T]], encode: Callable[[list[T]], list[str]]) -> Codec[T]:
    """Values that are written as texts, by functions of many at once."""

    def decode_one(value: Json) -> T:
        [decoded] = decode([_expect(str, value)])
        return decoded

    def encode_one(value: T) -> Json:
        [encoded] = encode([value])
        return encoded

    return Codec(decode_one, encode_one, decode, encode)


def member(kind: type[Member]) -> Codec[Member]:
    """A member of an enumeration, by its value. A value unknown to this release comes from a newer one."""

    def decode(value: Json) -> Member:
        try:
            return kind(_expect(str, value))
        except ValueError as error:
            raise UnknownFieldError(f"unknown {kind.__name__}: {value!r}") from error

    return Codec(decode, str)


def optional(codec: Codec[T]) -> Codec[T | None]:
    """A value or null."""

    def encode(value: T | None) -> Json:
        return None if value is None else codec.encode(value)

    def decode(value: Json) -> T | None:
        return None if value is None else codec.decode(value)

    return Codec(decode, encode)


def sequence(codec: Codec[T]) -> Codec[tuple[T, ...]]:
    """Values in a list."""

    def encode(values: tuple[T, ...]) -> Json:
        return [codec.encode(value) for value in values]

    def decode(value: Json) -> tuple[T, ...]:
        items = []
        for at, item in enumerate(_expect(list, value)):
            try:
                items.append(codec.decode(item))
            except ValueError as error:
                raise _error_in(f"[{at}]", error) from error
        return tuple(items)

    return Codec(decode, encode)


def pair(first: Codec[Any], second: Codec[Any]) -> Codec[tuple[Any, Any]]:
    """Two values in a list."""

    def encode(value: tuple[Any, Any]) -> Json:
        return [first.encode(value[0]), second.encode(value[1])]

    def decode(value: Json) -> tuple[Any, Any]:
        if len(_expect(list, value)) != 2:
            raise ValueError(f"expected two values, found {len(value)}")
        return first.decode(value[0]), second.decode(value[1])

    return Codec(decode, encode)


def mapping(codec: Codec[T]) -> Codec[dict[str, T]]:
    """Values by name."""

    def encode(values: dict[str, T]) -> Json:
        return {name: codec.encode(value) for name, value in values.items()}

    def decode(value: Json) -> dict[str, T]:
        return {name: _decode_field(name, codec, item) for name, item in _expect(dict, value).items()}

    return Codec(decode, encode)


ADVICE = "_"
"""What the name of a field begins with that readers may ignore."""


def _exactly(fields: Mapping[str, object], value: Json) -> dict[str, Json]:
    found: dict[str, Json] = _expect(dict, value)
    if found.keys() == fields.keys():
        return found
    if missing := sorted(fields.keys() - found.keys()):
        raise ValueError(f"fields are missing: {', '.join(missing)}")
    if unknown := sorted(name for name in found.keys() - fields.keys() if not name.startswith(ADVICE)):
        raise UnknownFieldError(f"unknown fields: {', '.join(unknown)}")
    return {name: found[name] for name in fields}


CHECKSUM = "checksum"
"""The field in which advice keeps its checksum."""
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def checksum_of(fields: Mapping[str, Json]) -> str:
    """The CRC-32 of all fields, known or not, regardless of their order and white space."""
    return f"{zlib.crc32(_CANONICAL.encode(fields).encode()):08x}"


_CONSTANT = {"all": None}
"""The fields of a column of one value."""
_ALIKE_MAX = 256
"""A column of more values is written out, even if all are alike: else a short text could have any number of them."""


def _column(codec: Codec[Any], name: str, values: Sequence[object]) -> Json:
    if not values:
        return []
    column = list(map(attrgetter(name), values))
    if column.count(column[0]) == len(column):
        return {"all": codec.encode(column[0])}
    if codec.encode_all is not None:
        return codec.encode_all(column)
    return column if codec.encode is _same else [codec.encode(value) for value in column]


def _decoded_column(name: str, codec: Codec[Any], value: Json, count: int) -> Iterable[Any]:
    if type(value) is dict:
        return repeat(_decode_field(name, codec, _exactly(_CONSTANT, value)["all"]), count)
    if len(_expect(list, value)) != count:
        raise ValueError(f"{name}: expected {count} values, found {len(value)}")
    kinds = set(map(type, value))
    if kinds == {int} and (codec is WHOLE or codec is COUNT):
        allowed = _INT64 if codec is WHOLE else _COUNTS
        if min(value) in allowed and max(value) in allowed:
            return list(value)
    try:
        return _decoded_texts(codec, value) if kinds == {str} else list(map(codec.decode, value))
    except ValueError as error:
        raise _error_in(name, error) from error


def _decoded_texts(codec: Codec[T], texts: list[str]) -> list[T]:
    # Shards share files and bounds: few texts are distinct. (Not so for other types: True equals 1.)
    distinct = list(set(texts))
    decoded = map(codec.decode, distinct) if codec.decode_all is None else codec.decode_all(distinct)
    values = dict(zip(distinct, decoded, strict=True))
    return [values[text] for text in texts]


def _decode_field(name: str, codec: Codec[T], value: Json) -> T:
    try:
        return codec.decode(value)
    except ValueError as error:
        raise _error_in(name, error) from error


def _error_in(name: str, error: ValueError) -> ValueError:
    return type(error)(f"{name}: {error}")
