"""TBLPROPERTIES as options of `@streaming_asset`: `'dagster_ckpt.interval' = '10 seconds'` is `checkpoint_interval`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dagster_ckpt.errors import did_you_mean
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.sql.sql_file import FileLine

PREFIX = "dagster_ckpt."
READS = "reads"
"""Names the tables that a query reads, where they are not found in its text."""

_RECOVERY = "recovery."


@dataclass(frozen=True, slots=True)
class Property:
    """One property as it is written."""

    name: str
    value: str
    place: FileLine


@dataclass(frozen=True, slots=True)
class Properties:
    """The options of the asset, the names that `dagster_ckpt.reads` gives, and all other properties, as metadata."""

    options: Mapping[str, Any]
    reads: tuple[str, ...] | None
    metadata: Mapping[str, str]


def read_properties(properties: Sequence[Property]) -> Properties:
    """The properties of a table by what they are for.

    Raises `InvalidPipelineError` for an unknown one that begins with `dagster_ckpt`, and for a value of another type.
    """
    options: dict[str, Any] = {}
    recovery: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    reads: tuple[str, ...] | None = None
    for each in properties:
        name = each.name.removeprefix(PREFIX)
        if name == each.name:
            _check_foreign(each)
            metadata[name] = each.value
        elif name == READS:
            reads = tuple(_list(each))
        elif name in OPTIONS:
            option, read = OPTIONS[name]
            options[option] = read(each)
        elif name.startswith(_RECOVERY) and name.removeprefix(_RECOVERY) in _OF_RECOVERY:
            field = name.removeprefix(_RECOVERY)
            recovery[field] = _number(each) if _OF_RECOVERY[field] is int else each.value
        else:
            raise _unknown(each, name)
    return Properties(options | ({"recovery": Recovery(**recovery)} if recovery else {}), reads, metadata)


def _text(given: Property) -> str:
    return given.value


def _number(given: Property) -> int:
    try:
        return int(given.value)
    except ValueError:
        raise given.place.error("this takes a whole number.", name=given.name, value=given.value) from None


def _switch(given: Property) -> bool:
    if given.value.lower() not in {"true", "false"}:
        raise given.place.error("this is true or false.", name=given.name, value=given.value)
    return given.value.lower() == "true"


def _list(given: Property) -> list[str]:
    return [part.strip() for part in given.value.split(",") if part.strip()]


def _set(given: Property) -> set[str]:
    return set(_list(given))


def _pairs(given: Property) -> dict[str, str]:
    """`domain=shop, gold`: a name alone has no value, as Dagster shows tags."""
    pairs = (part.partition("=") for part in _list(given))
    return {name.strip(): value.strip() for name, _, value in pairs}


OPTIONS: Mapping[str, tuple[str, Callable[[Property], Any]]] = {
    "mode": ("mode", _text),
    "interval": ("checkpoint_interval", _text),
    "run_for": ("run_for", _text),
    "autostart": ("autostart", _switch),
    "shards": ("shards", _number),
    "tasks": ("tasks", _number),
    "max_epochs_per_batch": ("max_epochs_per_batch", _number),
    "group": ("group_name", _text),
    "owners": ("owners", _list),
    "tags": ("tags", _pairs),
    "kinds": ("kinds", _set),
    "run_tags": ("run_tags", _pairs),
    "code_version": ("code_version", _text),
    "primary_key": ("primary_key", _list),
    "pool": ("pool", _text),
}
"""The properties that are options: the option's name, and how it is read from the property."""

_OF_RECOVERY = {field.name: type(field.default) for field in fields(Recovery)}

_ELSEWHERE = {
    "retained": "how many epochs are retained is an option of the store: CheckpointCoordinatorResource(retained=...)",
    "expire_after": "rows expire by what the query says: compare event times in the join, or group by a window",
    "sources": "sources are declared by CREATE TEMPORARY VIEW name (columns) USING format OPTIONS (...), or in Python",
    "description": "the description is the table's COMMENT '...'",
    "moved": "new addresses of sources are given to all: streaming_sql(..., moved={'old': 'new'})",
    "renamed": "no name that a query gives is in its state: rename columns in the query (a table that only grows shows "
    "null for them in its older rows)",
    "name": "the asset has the name of the table",
    "key_prefix": "a prefix is given to all: streaming_sql(..., key_prefix=...)",
}
"""What users look for among the properties, and where it is."""


def _unknown(given: Property, name: str) -> Exception:
    if name in _ELSEWHERE:
        return given.place.error(f"{_ELSEWHERE[name]}.", name=given.name)
    return given.place.error(f"unknown property.{_near(name)}", name=given.name)


def _near(name: str) -> str:
    """The property that was meant, if one is close to the name without its prefix; options count by their names too."""
    named = {option: own for own, (option, _) in OPTIONS.items()}
    own = [*OPTIONS, *(f"{_RECOVERY}{field}" for field in _OF_RECOVERY), READS]
    found = did_you_mean(named.get(name, name), own)
    return found.replace("'", f"'{PREFIX}", 1)


def _check_foreign(given: Property) -> None:
    """A property of another system is kept as metadata; one that was meant for us must not be."""
    if given.name in OPTIONS or given.name.startswith(_RECOVERY):
        raise given.place.error(
            f"options of the asset begin with {PREFIX}: write '{PREFIX}{given.name}'.", name=given.name
        )
    if given.name.lower().startswith("dagster"):
        raise given.place.error(
            f"options of the asset begin with {PREFIX}{_near(given.name.rpartition('.')[2])}", name=given.name
        )
