"""The options of one streaming asset, checked where it is decorated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import SHARDS_MAX, can_be_shards
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.protocol.redaction import redacted_text
from dagster_ckpt.quantities import Duration, milliseconds
from dagster_ckpt.runtime.run_mode import Mode

OUR_TAGS = "dagster_ckpt/"
_DAGSTERS_TAGS = ("dagster/", ".dagster/")


@dataclass(frozen=True)
class StreamOptions:
    """How a stream runs; its run config may override it. `checkpoint_interval_ms`: None for the resource's.

    `max_epochs_per_batch` is the most epochs of an upstream that one of its epochs may take in. `tasks` is the most
    tasks that process the shards, None for as many as the cluster allows. `moved` maps the old addresses of source
    folders to the new ones, `renamed` the old names of columns. `sources` are external assets: what the stream reads
    outside of Dagster. `primary_key` are the columns that identify a row of the table; none: what follows from it.
    """

    mode: Mode
    shards: int
    run_for_ms: int
    checkpoint_interval_ms: int | None
    autostart: bool
    run_tags: Mapping[str, str]
    recovery: Recovery
    max_epochs_per_batch: int
    tasks: int | None
    moved: Mapping[str, str]
    renamed: Mapping[str, str]
    sources: tuple[dg.AssetSpec, ...]
    primary_key: tuple[str, ...]


def stream_options(  # noqa: PLR0913  (the options of the decorator, by name)
    *,
    mode: str = Mode.AVAILABLE_NOW,
    shards: int = 8,
    run_for: Duration = "12 hours",
    checkpoint_interval: Duration | None = None,
    autostart: bool = False,
    run_tags: Mapping[str, str] | None = None,
    recovery: Recovery | None = None,
    max_epochs_per_batch: int = 100,
    tasks: int | None = None,
    moved: Mapping[str, str] | None = None,
    renamed: Mapping[str, str] | None = None,
    sources: Sequence[dg.AssetSpec] = (),
    primary_key: str | Sequence[str] = (),
) -> StreamOptions:
    """The options as given to the decorator, checked. Raises `InvalidPipelineError`."""
    if autostart and mode != Mode.CONTINUOUS:
        raise InvalidPipelineError(
            "autostart keeps a continuous stream running: give it mode='continuous', or leave it out. "
            f"mode={str(mode)!r}"
        )
    interval_ms = None if checkpoint_interval is None else milliseconds(checkpoint_interval, "checkpoint_interval")
    return StreamOptions(
        mode=run_mode(mode),
        shards=_shards(shards),
        run_for_ms=milliseconds(run_for, "run_for"),
        checkpoint_interval_ms=interval_ms,
        autostart=autostart,
        run_tags=_run_tags(run_tags or {}),
        recovery=_recovery(recovery),
        max_epochs_per_batch=_epochs(max_epochs_per_batch),
        tasks=_tasks(tasks),
        moved=_check_moved({} if moved is None else moved),
        renamed=_check_renamed({} if renamed is None else renamed),
        sources=_sources(sources),
        primary_key=_primary_key(primary_key),
    )


def run_mode(mode: str) -> Mode:
    """The mode of that name. Raises `InvalidPipelineError`."""
    try:
        return Mode(mode)
    except ValueError:
        raise InvalidPipelineError(f"unknown mode: use 'available_now' or 'continuous'. mode={mode!r}") from None


def _shards(shards: int) -> int:
    if not can_be_shards(shards) or shards > SHARDS_MAX:
        raise InvalidPipelineError(
            f"shards must be a power of two from 1 to {SHARDS_MAX}: each is a range of the 64-bit key hash. "
            f"shards={shards!r}"
        )
    return shards


def _primary_key(given: object) -> tuple[str, ...]:
    names: tuple[object, ...] = (given,) if isinstance(given, str) else tuple(given) if _is_list(given) else (None,)
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise InvalidPipelineError(
            f'primary_key names columns, each once: primary_key=["station", "hour"]. primary_key={given!r}'
        )
    return tuple(map(str, names))


def _is_list(given: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(given, list | tuple)


def _check_moved(moved: object) -> Mapping[str, str]:
    addresses = [*moved, *moved.values()] if isinstance(moved, Mapping) else [None]
    if not all(type(address) is str and address.strip("/ ") for address in addresses):
        raise InvalidPipelineError(
            "moved maps the old address of a source's folder to the new one: "
            'moved={"s3a://old/departures": "s3a://new/departures"}. '
            f"moved={redacted_text(repr(moved))}"
        )
    assert isinstance(moved, Mapping)
    return dict(moved)


def _check_renamed(renamed: object) -> Mapping[str, str]:
    names: list[Any] = [*renamed, *renamed.values()] if isinstance(renamed, Mapping) else [None]
    if not all(type(name) is str and name for name in names):
        raise InvalidPipelineError(
            'renamed maps the old name of a column to the new one: renamed={"carrier": "airline"}. '
            f"renamed={renamed!r}"
        )
    assert isinstance(renamed, Mapping)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        # It stays in the code after it was written, so two names must not be exchanged again at each start.
        raise InvalidPipelineError(
            "each name is once in renamed, as an old name or as a new one: leave out what an earlier start has "
            f"written, and exchange two names with a third in between. names={', '.join(twice)}, renamed={renamed!r}"
        )
    return dict(renamed)


def _sources(sources: Any) -> tuple[dg.AssetSpec, ...]:
    # An AssetSpec and an AssetKey are tuples too, of a kind.
    found = tuple(sources) if type(sources) in (list, tuple) else (sources,)
    for each in found:
        if not isinstance(each, dg.AssetSpec):
            raise InvalidPipelineError(
                'sources are external assets, such as dg.AssetSpec("departures_topic", kinds={"kafka"}): put an asset '
                f"that is defined elsewhere into deps. sources={each!r}"
            )
    return found


def _epochs(epochs: object) -> int:
    if type(epochs) is not int or epochs < 1:
        raise InvalidPipelineError(
            f"max_epochs_per_batch is the most epochs of an upstream that one micro-batch may take in: 1 or more. "
            f"max_epochs_per_batch={epochs!r}"
        )
    return epochs


def _tasks(tasks: object) -> int | None:
    if tasks is not None and (type(tasks) is not int or tasks < 1):
        raise InvalidPipelineError(
            "tasks is the most Spark tasks that process the shards of an epoch: 1 or more, or leave it out for as many "
            f"as the cluster allows. tasks={tasks!r}"
        )
    return tasks


def _recovery(recovery: object) -> Recovery:
    if recovery is not None and not isinstance(recovery, Recovery):
        # Otherwise it would fail the sensor, which would recover no stream of this code location.
        raise InvalidPipelineError(f"recovery is a Recovery(max_attempts=..., ...). recovery={recovery!r}")
    return recovery or Recovery()


def _run_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    reserved = sorted(tag for tag in tags if tag.startswith((OUR_TAGS, *_DAGSTERS_TAGS)))
    if reserved:
        raise InvalidPipelineError(
            "run_tags beginning with 'dagster/', '.dagster/' or 'dagster_ckpt/' are reserved for Dagster and the "
            f"recovery sensor: choose other names. run_tags={reserved}"
        )
    return dict(tags)
