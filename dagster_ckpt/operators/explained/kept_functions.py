"""The state of process functions, from the names of their tables: the function itself is in no manifest."""

from collections.abc import Iterator, Mapping

from dagster_ckpt.operators.explained.kept import ONE_EPOCH, Bound, Kept, Limit, behind, expiring
from dagster_ckpt.operators.process.process_tables import EXPIRY, OUT, SEEN, TIMERS, size_table, state_table
from dagster_ckpt.protocol.manifest.manifest import Pipeline

_FIXED: Mapping[str, tuple[str, Limit]] = {
    TIMERS: ("the timers of each key", behind(0, "it")),
    OUT: ("the output of the function", ONE_EPOCH),
}


def of_process(pipeline: Pipeline) -> Iterator[Kept]:
    """The tables of the states that the function declares, and of its timers."""
    after_us = pipeline.parameters["expire_after_us"]
    names = {spec.name for spec in pipeline.tables}
    for spec in pipeline.tables:
        if spec.name in _FIXED:
            yield Kept(spec.name, *_FIXED[spec.name])
        elif spec.name in (SEEN, EXPIRY):
            assert isinstance(after_us, int), "they are there for keys that expire"
            what = (
                "the newest event time of each key"
                if spec.name == SEEN
                else "the time to look for each key whether it has expired"
            )
            yield Kept(spec.name, what, expiring(after_us))
        elif spec.name.startswith(state_table("")):
            state = spec.name.removeprefix(state_table(""))
            is_list = size_table(state) in names
            what = f"state {state!r}: {'a list' if is_list else 'one value'} for each key"
            yield Kept(spec.name, what, _limit(after_us, Bound.ROWS if is_list else Bound.KEYS))
        elif spec.name.startswith(size_table("")):
            state = spec.name.removeprefix(size_table(""))
            yield Kept(spec.name, f"how long the list {state!r} of each key is", _limit(after_us, Bound.KEYS))


def _limit(after_us: object, bound: Bound) -> Limit:
    if isinstance(after_us, int):
        return expiring(after_us)
    return Limit(bound, f"none, but for what the function deletes: grows with the {bound}")
