"""Stacks as boxes: each call as wide as it takes, below the call that it is part of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_DEPTH_MAX = 24
_SHARE_MIN = 0.004
"""Of the whole: what is narrower is left out."""


@dataclass
class Call:
    """A call, how long it took with all that it called, and these."""

    name: str
    ms: float = 0.0
    calls: "dict[str, Call]" = field(default_factory=dict)

    @classmethod
    def of(cls, stacks: Mapping[tuple[str, ...], float]) -> "Call":
        """The root of all."""
        root = cls("all")
        for stack, ms in stacks.items():
            call = root
            call.ms += ms
            for name in stack[:_DEPTH_MAX]:
                call = call.calls.setdefault(name, cls(name))
                call.ms += ms
        return root


@dataclass(frozen=True)
class Box:
    """Where a call is drawn: from `left` on, in milliseconds, in the row of its depth. `part` numbers its colour."""

    name: str
    left: float
    ms: float
    depth: int
    part: int


def boxes(root: Call) -> list[Box]:
    """Those of all calls that are wide enough, the widest of each call first."""
    return [
        box
        for part, (call, left) in enumerate(_beside(root, 0.0))
        for box in _boxes(call, left, 0, part, root.ms * _SHARE_MIN)
    ]


def _boxes(call: Call, left: float, depth: int, part: int, least: float) -> Iterator[Box]:
    if call.ms < least:
        return
    yield Box(call.name, left, call.ms, depth, part)
    for inner, at in _beside(call, left):
        yield from _boxes(inner, at, depth + 1, part, least)


def _beside(call: Call, left: float) -> Iterator[tuple[Call, float]]:
    for each in sorted(call.calls.values(), key=lambda one: (-one.ms, one.name)):
        yield each, left
        left += each.ms
