"""Keys on a command line: `carrier=UA`."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from dagster_ckpt.cli.far_times import read_times
from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.protocol.manifest.manifest import Manifest


def keys_in(words: Sequence[str], manifest: Manifest) -> dict[str, pa.Array]:
    """The values of each named column, in order. Raises `InvalidPipelineError` for an invalid value."""
    keys, name_of = manifest.pipeline.key_names, manifest.pipeline.name_of
    known = {name_of(name) for spec in manifest.pipeline.tables for name in spec.keys}.union(keys)
    texts: dict[str, list[str | None]] = {}
    for word in words:
        name, value = _name_and_value(word, known)
        texts.setdefault(name, []).append(value)
    for name, values in texts.items():
        if keys and name not in keys and values == [None] and not did_you_mean(name, keys):
            raise InvalidPipelineError(f"a key is COLUMN=VALUE: write --key {keys[0]}={name}. key={list(keys)}")
    fields = [field for spec in manifest.pipeline.tables for field in spec.schema]
    types = {name_of(field.name): field.type for field in fields}
    return {name: _values(name, values, types.get(name, pa.string())) for name, values in texts.items()}


def _name_and_value(word: str, known: Collection[str]) -> tuple[str, str | None]:
    """The text before and after the equals sign; None without one. A column's name may contain one, too."""
    if word in known:
        return word, None
    for name in sorted(known, key=len, reverse=True):
        if word.startswith(f"{name}="):
            return name, word[len(name) + 1 :]
    name, equals, value = word.partition("=")
    return name.strip(), value if equals else None


def _values(name: str, texts: list[str | None], type_: pa.DataType) -> pa.Array:
    try:
        return pa.array(texts, pa.string()).cast(type_)
    except pa.ArrowException as error:
        if (far := read_times(texts, type_)) is not None:
            return far
        raise InvalidPipelineError(
            f"this cannot be read as a value of the column. column={name!r}, type={type_}, reason={str(error)!r}"
        ) from None
