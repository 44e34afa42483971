"""Where a delivery goes: one of `dagster_ckpt.destinations`, by its fields, or one of the project's, by its path."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, get_type_hints

import dagster as dg
from pydantic import BaseModel, TypeAdapter, create_model
from pydantic import Field as ModelField

from dagster_ckpt import destinations
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.component.templates import load_object, render_all

BY_NAME: Mapping[str, type[Any]] = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): getattr(destinations, name) for name in destinations.__all__
}
"""The classes by their names in YAML: `delta_lake` for `DeltaLake`."""

_MEMBERS = ("kind", "address", "check", "check_mode", "open")


def _model(kind: type[Any]) -> type[BaseModel]:
    """A model of a destination's fields, with their defaults."""
    hints = get_type_hints(kind)
    made = {_field_name(each.name): (_injectable(hints[each.name]), _describe(each)) for each in fields(kind)}
    return create_model(f"{kind.__name__}Attributes", __base__=dg.Model, **made)  # type: ignore[call-overload,no-any-return]


def _field_name(name: str) -> str:
    return f"{name}_" if hasattr(BaseModel, name) else name


def _injectable(hint: Any) -> Any:
    return hint if hint is str else hint | str


def _describe(each: "Field[Any]") -> Any:
    default = each.default if each.default_factory is MISSING else each.default_factory()
    return ModelField(... if default is MISSING else default, alias=each.name, repr=each.repr)


_Attributes = create_model(  # type: ignore[call-overload]
    "DestinationAttributes",
    __base__=dg.Model,
    **{
        name: (_model(kind) | None, ModelField(None, description=(kind.__doc__ or "").partition("\n")[0]))
        for name, kind in BY_NAME.items()
    },
)


def _destination(context: dg.ResolutionContext, given: str | BaseModel) -> Any:
    """The destination. Raises `InvalidPipelineError` for none or several, and for an object that is none."""
    if isinstance(given, str):
        found = load_object(context, given)
        if missing := [name for name in _MEMBERS if name not in dir(found)]:
            raise InvalidPipelineError(
                "to names a destination: an object as those of dagster_ckpt.destinations are. "
                f"to={given}, found={type(found).__name__}, missing={', '.join(missing)}"
            )
        return found
    chosen: dict[str, dict[str, Any]] = given.model_dump(exclude_unset=True, by_alias=True)
    if len(chosen) != 1:
        raise InvalidPipelineError(
            f"a delivery goes to one destination: give one of {', '.join(BY_NAME)}. given={list(chosen)}"
        )
    [(name, values)] = chosen.items()
    kind = BY_NAME[name]
    hints, rendered = get_type_hints(kind), render_all(context.at_path(name), values)
    # A template leaves a text where a number is wanted.
    return kind(**{field: TypeAdapter(hints[field]).validate_python(value) for field, value in rendered.items()})


ResolvedDestination = Annotated[
    Any,
    dg.Resolver(
        _destination,
        model_field_type=str | _Attributes,
        description="Where to: a destination with its fields, or the Python path of one of yours.",
        examples=[{"postgres": {"url": "{{ env.SHOP_URL }}", "table": "delays"}}, ".destinations.shop"],
    ),
]
