"""A function in YAML: its name with its column, and its options, as `{lag: delay, offset: 2}`."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from dagster_ckpt.errors import InvalidPipelineError


def call(
    what: str,
    name: str,
    given: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
    options: Collection[str],
) -> Any:
    """What one of the functions returns for these values: its own name has the first argument, the others are options.

    `what` is the kind of function and `name` the column that it makes, for the error. Raises `InvalidPipelineError` for
    no function or several, and for options that the function does not take or lacks.
    """
    chosen = [each for each in given if each not in options]
    if len(chosen) != 1 or chosen[0] not in functions:
        raise InvalidPipelineError(
            f"write one function of a column, such as {{avg: dep_delay}}. {what}={name}, given={chosen}"
        )
    [function] = chosen
    others = {option: value for option, value in given.items() if option in options}
    _, *takes = inspect.signature(functions[function]).parameters.values()
    lacks = [each.name for each in takes if each.default is inspect.Parameter.empty and each.name not in others]
    known = [each.name for each in takes]
    if lacks or not others.keys() <= set(known):
        raise InvalidPipelineError(
            f"these options do not fit the function: {function} takes {known}. "
            f"{what}={name}, options={list(others)}, missing={lacks}"
        )
    return functions[function](given[function], **others)
