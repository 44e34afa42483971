"""Keys as people write them on a command line: `carrier=UA`."""

from collections.abc import Sequence

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.protocol.manifest import Manifest


def keys_in(words: Sequence[str], manifest: Manifest) -> dict[str, pa.Array]:
    """The values of each column that is named, in their order. Raises `InvalidPipelineError` for what is no value."""
    texts: dict[str, list[str | None]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        texts.setdefault(name.strip(), []).append(value if equals else None)
    keys = manifest.pipeline.keys
    for name, values in texts.items():
        if keys and name not in keys and values == [None] and not did_you_mean(name, keys):
            raise InvalidPipelineError(f"a key is COLUMN=VALUE: write --key {keys[0]}={name}. key={list(keys)}")
    types = {field.name: field.type for spec in manifest.pipeline.tables for field in spec.schema}
    return {name: _values(name, values, types.get(name, pa.string())) for name, values in texts.items()}


def _values(name: str, texts: list[str | None], type_: pa.DataType) -> pa.Array:
    try:
        return pa.array(texts, pa.string()).cast(type_)
    except pa.ArrowException as error:
        raise InvalidPipelineError(
            f"this cannot be read as a value of the column. column={name!r}, type={type_}, reason={str(error)!r}"
        ) from None
