"""Texts with Jinja templates, which stay texts, and Python objects named by their path.

Dagster renders a YAML text to a Python value: the text 1 becomes a number, and the SQL literal 'UA' a text without
quotes. Here a text stays what it is, and only its templates are replaced.
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean

_TEMPLATE = re.compile(r"\{\{|\{%")
_ONE_EXPRESSION = re.compile(r"\s*\{\{[^{}]*\}\}\s*")
_NO_LITERAL = "?"
"""What begins with it is no Python literal, so the renderer leaves it a text."""


def render(context: dg.ResolutionContext, text: str) -> str:
    """The text with its templates replaced by their values. Raises `InvalidPipelineError` if there is none."""
    if not _TEMPLATE.search(text):
        return text
    if _ONE_EXPRESSION.fullmatch(text) and context.resolve_value(text, as_type=object) is None:
        raise InvalidPipelineError(
            "the template has no value: set the environment variable that it names, or give a default by "
            f"{{{{ env('NAME', 'default') }}}}. template={text}"
        )
    return context.resolve_value(_NO_LITERAL + text, as_type=str).removeprefix(_NO_LITERAL)


def render_all(context: dg.ResolutionContext, value: Any) -> Any:
    """The value with each text in it rendered, at any depth."""
    if isinstance(value, str):
        return render(context, value)
    if isinstance(value, Mapping):
        return {name: render_all(context.at_path(name), each) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [render_all(context.at_path(number), each) for number, each in enumerate(value)]
    return value


def load_object(context: dg.ResolutionContext, path: str) -> Any:
    """The Python object that a dotted path names; a path that begins with a dot is relative to the component's folder.

    Raises `InvalidPipelineError` for a module without such an object.
    """
    module_name, _, name = _absolute(context, path).rpartition(".")
    if not module_name:
        raise InvalidPipelineError(
            "name a Python object with its module, such as my_project.streams.delays, or .streams.delays for a module "
            f"beside this file. path={path}"
        )
    module = importlib.import_module(module_name)
    if not hasattr(module, name):
        raise InvalidPipelineError(
            f"the module has no object of this name.{did_you_mean(name, vars(module))} "
            f"module={module_name}, name={name}"
        )
    return getattr(module, name)


def _absolute(context: dg.ResolutionContext, path: str) -> str:
    if not path.startswith("."):
        return path
    loading = dg.ComponentLoadContext.from_resolution_context(context)
    return loading.defs_relative_module_name(loading.path) + path


Scalar = str | int | float | bool


def text(description: str, examples: list[str] | None = None) -> dg.Resolver:
    """The resolver of a text."""
    return dg.Resolver(
        render_all, model_field_type=str, inject_before_resolve=False, description=description, examples=examples
    )


def texts(description: str, examples: list[Any] | None = None) -> dg.Resolver:
    """The resolver of a list of texts."""
    return dg.Resolver(render_all, model_field_type=list[str], description=description, examples=examples)


def texts_by_name(description: str, examples: list[Any] | None = None) -> dg.Resolver:
    """The resolver of texts by name."""
    return dg.Resolver(render_all, model_field_type=dict[str, str], description=description, examples=examples)


def settings(description: str, examples: list[Any] | None = None) -> dg.Resolver:
    """The resolver of options by name, as Spark takes them: texts, numbers and booleans."""
    return dg.Resolver(render_all, model_field_type=dict[str, Scalar], description=description, examples=examples)
