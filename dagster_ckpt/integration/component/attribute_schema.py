"""The JSON schema of a component's attributes, with errors that lead to the place.

Dagster lets a template stand for any value, so each field of a derived schema is `anyOf` what it is and a text. A
validator says of a value that matches neither only that it is "not valid under any of the given schemas", at the place
of the field, however deep the mistake is. Here a template is recognized by its braces, and the other alternatives by
their JSON type: then one schema is left to match, and the error is of that one, at its place. `anyOf` stays for tools
that show the schema, with a last alternative that is always valid.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_TEMPLATE: Schema = {"type": "string", "pattern": r"\{\{"}
_ANYTHING: Schema = {"description": "a template"}
_SCALARS = {"string", "integer", "number", "boolean", "null"}


@cache
def with_exact_schema(model: type[BaseModel]) -> type[BaseModel]:
    """The model, with its JSON schema passed through `with_exact_errors`."""

    class Attributes(model):  # type: ignore[valid-type, misc]
        @classmethod
        def model_json_schema(cls, *args: Any, **kwargs: Any) -> Schema:
            schema: Schema = super().model_json_schema(*args, **kwargs)
            return with_exact_errors(schema)

    return Attributes


def with_exact_errors(schema: Schema) -> Schema:
    """The schema of a derived model, with conditions beside each `anyOf`.

    It accepts the same documents, except that a text in place of another type must be a template.
    """
    exact: Schema = _exact(schema, schema.get("$defs", {}))
    return exact


def _exact(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_exact(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    done = {name: _exact(value, definitions) for name, value in node.items() if name != "anyOf"}
    if "anyOf" in node:
        done.update(_conditions(_exact(node["anyOf"], definitions), definitions))
    return done


def _conditions(members: Sequence[Schema], definitions: Mapping[str, Any]) -> Schema:
    """Conditions for `anyOf` these. Dagster adds the text that may be a template as the last one."""
    alternatives = [each for each in members if each != {"type": "null"}]
    injected = len(alternatives) > 1 and alternatives[-1] == {"type": "string"}
    own = [each for each in members if not injected or each is not alternatives[-1]]
    types = [_type_name(each, definitions) for each in own]
    if None in types or (not injected and set(types) <= _SCALARS):
        return {"anyOf": list(members)}  # anything is valid, or the error names the value at its place
    by_type: dict[str | None, list[Schema]] = {}
    for type_, each in zip(types, own, strict=True):
        by_type.setdefault(type_, []).append(each)
    accepted = by_type.pop("null", [])
    if injected:
        accepted = [*accepted, _TEMPLATE]
    chosen = _by_type([(type_, each[0] if len(each) == 1 else {"anyOf": each}) for type_, each in by_type.items()])
    conditions = {"if": {"anyOf": accepted}, "then": True, "else": chosen} if accepted else {"allOf": [chosen]}
    return {"anyOf": [*own, _ANYTHING], **conditions}


def _by_type(members: Sequence[tuple[str | None, Schema]]) -> Schema:
    """The schema that a value must match, chosen by the value's JSON type; the last one is for all other types."""
    (type_, first), *rest = members
    return {"if": {"type": type_}, "then": first, "else": _by_type(rest)} if rest else first


def _type_name(member: Mapping[str, Any], definitions: Mapping[str, Any]) -> str | None:
    """The JSON type of a member, that of the model for a reference to one; None if it may be of any type."""
    if "$ref" in member:
        return _type_name(definitions[member["$ref"].rsplit("/", maxsplit=1)[-1]], definitions)
    return member.get("type")
