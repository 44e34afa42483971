"""Digests of the user's functions in Python, by which it is noticed that the body of one has changed.

They are advice. A function counts by its name and its types, and a stream goes on with what older code has made.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from types import CodeType, FunctionType, MethodType
from typing import Any

from pyspark.serializers import CloudPickleSerializer

from dagster_ckpt.runtime.catalyst.plan_text import python_functions
from dagster_ckpt.runtime.declared.stream import Stream

Digests = tuple[tuple[str, str], ...]
"""The names of functions, sorted, each with its digest. Several may have one name, as lambdas do."""

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_PARTS_MAX = 100_000
"""A function may have a large table about it: its digest is of so many parts."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))


def function_digests(stream: Stream) -> Digests:
    """Those of all functions of a stream: of its plans, its aggregates and its process functions."""
    return tuple(sorted({(name, digest(function)) for name, function in _functions(stream)}))


def changed_functions(before: Digests, now: Digests) -> list[str]:
    """The names under which a digest is gone and another one has come.

    Versions of Python compile the same code to another one, so digests of another version say nothing.
    """
    gone = {(name, digest.partition(":")[0]) for name, digest in {*before} - {*now}}
    come = {(name, digest.partition(":")[0]) for name, digest in {*now} - {*before}}
    return sorted(name for name, _ in gone & come)


def digest(function: object) -> str:
    """The version of Python, and a digest of a function with those of its module that it calls."""
    text = "\n".join(islice(_callable_parts(function, set()), _PARTS_MAX))
    return f"{_PYTHON}:{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def _functions(stream: Stream) -> Iterator[tuple[str, object]]:
    for step in stream.steps:
        for each in step.inputs:
            for name, pickled in python_functions(each.frame):
                yield name, _load_function(pickled)
        if isinstance(step.code, Mapping):
            yield from step.code.items()
        elif step.code is not None:
            yield type(step.code).__name__, step.code


def _load_function(pickled: Callable[[], bytes]) -> object:
    """The function of a call in a plan; the kind of the error where it cannot be had, as one that Spark broadcasts."""
    serializer: Any = CloudPickleSerializer
    try:  # it is this process that has pickled it
        function, *_ = serializer().loads(pickled())
    except Exception as error:  # noqa: BLE001  (whatever a module raises that is imported for it)
        return type(error)
    return function


def _callable_parts(function: object, seen: set[int]) -> Iterator[str]:
    """As `_parts`, also of an object that has methods."""
    if isinstance(function, FunctionType | type | MethodType | functools.partial):
        yield from _parts(function, seen)
    else:
        yield from _parts(type(function), seen)
        yield from _parts(getattr(function, "__dict__", None), seen)


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    """What determines the behaviour of a value, as far as it is the same in another process.

    Functions, classes, lists and dicts that were `seen` are left out: they may have each other.
    """
    kind = type(value)
    yield kind.__qualname__
    if isinstance(value, FunctionType | type | list | dict):
        if id(value) in seen:
            return
        seen.add(id(value))
    if isinstance(value, _PLAIN):
        yield repr(value)
    elif isinstance(value, FunctionType):
        yield from _function_parts(value, seen)
    elif isinstance(value, type):
        yield from _class_parts(value, seen)
    elif kind in (tuple, list):
        for each in value:
            yield from _parts(each, seen)
    elif kind in (set, frozenset):
        yield from sorted("\n".join(_parts(each, seen)) for each in value)
    else:
        yield from _parts(_items(value), seen)


def _items(value: Any) -> tuple[object, ...]:
    """What a value is made of."""
    match value:
        case CodeType():
            return (value.co_code, value.co_names, value.co_consts)
        case MethodType() | staticmethod() | classmethod():
            return (value.__func__,)
        case property():
            return (value.fget, value.fset)
        case functools.partial():
            return (value.func, value.args, value.keywords)
        case dict():
            return tuple(sorted(value.items(), key=lambda item: repr(item[0])))
    return ()


def _function_parts(function: FunctionType, seen: set[int]) -> Iterator[str]:
    yield from _parts(function.__code__, seen)
    yield from _parts((function.__defaults__, function.__kwdefaults__), seen)
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # of what is not there yet
            yield from _parts(cell.cell_contents, seen)
    for name in sorted(_names(function.__code__)):
        known = function.__globals__.get(name)
        if isinstance(known, _PLAIN) or getattr(known, "__module__", None) == function.__module__:
            yield from _parts(known, seen)


def _class_parts(own: type, seen: set[int]) -> Iterator[str]:
    for name, each in sorted(vars(own).items()):
        if not name.startswith("__") or name in ("__init__", "__call__"):
            yield name
            yield from _parts(each, seen)
    for base in own.__bases__:
        if base.__module__ == own.__module__:
            yield from _parts(base, seen)


def _names(code: CodeType) -> set[str]:
    within = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names, *(name for each in within for name in _names(each))}
