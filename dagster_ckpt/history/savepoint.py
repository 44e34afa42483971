"""Several streams together: pinned at epochs that belong together, and taken back to these."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.history.info.epoch_info import EpochInfo
from dagster_ckpt.history.info.pin_info import PinInfo
from dagster_ckpt.history.snapshot import Snapshot
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.ids import Epoch

_LOOK_MS = 250
_IDLE_MS = 3_000
"""A writer without work for so long has nothing to commit; for the first second of an epoch it reports none."""

Streams = Mapping[str, StreamHistory]


def pin_together(
    streams: Streams, name: str, wait_ms: int, clock: Clock, snapshot: Callable[[], Snapshot]
) -> dict[str, PinInfo]:
    """Pin an epoch of each stream under one name, with all that its writer had begun to work on.

    Waits at most `wait_ms` for the epochs in work; `snapshot` then chooses epochs that belong together. A crash leaves
    some streams pinned: unpin them, or choose another name. After an error none is.
    """
    for stream, history in streams.items():
        if any(pin.name == name for pin in history.pins()):
            raise InvalidPipelineError(
                f"this name is taken by another pin: unpin it first, or choose another name. pin={name!r}, "
                f"stream={stream!r}"
            )
    _wait_for_fresh(streams, wait_ms, clock)
    chosen, made = snapshot(), dict[str, PinInfo]()
    try:
        for stream in streams:
            made[stream] = streams[stream].pin(chosen.manifest(stream).epoch, name)
    except BaseException:
        for stream in made:
            streams[stream].unpin(name)
        raise
    return made


def roll_back(streams: Streams, epochs: Mapping[str, int], *, fence: bool) -> dict[str, EpochInfo]:
    """Roll each stream back to its epoch: what reads another goes first, so that none is behind what it reads.

    All are checked before the first is changed. A crash leaves some where they were: the same again goes on.
    """
    for stream, history in streams.items():
        history.check_can_go_back(epochs[stream])
    done = {stream: streams[stream].rollback(epochs[stream], fence=fence) for stream in _readers_first(streams)}
    return {stream: done[stream] for stream in streams}


def epochs_pinned(streams: Streams, name: str) -> dict[str, Epoch]:
    """The epoch that each stream has under that pin. Raises `InvalidPipelineError` where one has no such pin."""
    found = dict[str, Epoch]()
    for stream, history in streams.items():
        there = {pin.name: Epoch(pin.epoch) for pin in history.pins()}
        if name not in there:
            raise InvalidPipelineError(f"there is no such pin. pin={name!r}, pins={sorted(there)}, stream={stream!r}")
        found[stream] = there[name]
    return found


def _wait_for_fresh(streams: Streams, wait_ms: int, clock: Clock) -> None:
    """Wait until each writer has committed an epoch, or has nothing to commit."""
    watches = {stream: (history.watch_writer(), history.latest().epoch) for stream, history in streams.items()}
    began_ms, idle_since = clock.monotonic_ms(), dict.fromkeys(streams, clock.monotonic_ms())
    while True:
        now_ms, behind = clock.monotonic_ms(), list[str]()
        for stream, (watch, epoch) in watches.items():
            writer = watch.look()
            if writer.ended or streams[stream].latest().epoch != epoch:
                continue
            if writer.work is not None:
                idle_since[stream] = now_ms
            if now_ms - idle_since[stream] < _IDLE_MS:
                behind.append(stream)
        if not behind:
            return
        if now_ms - began_ms >= wait_ms:
            raise StoreUnavailableError(
                f"no epoch was committed in time: wait longer, or pin the current epoch. streams={behind}, "
                f"waited_ms={wait_ms}"
            )
        clock.sleep_ms(_LOOK_MS)


def _readers_first(streams: Streams) -> Iterator[str]:
    """The streams, each after all of them that read it."""
    reads = {stream: {each.stream for each in history.upstreams()} for stream, history in streams.items()}
    left = list(streams)
    while left:
        stream = next((each for each in left if not any(each in reads[other] for other in left)), left[0])
        left.remove(stream)
        yield stream


def check_names(streams: Sequence[str]) -> None:
    """Raise `InvalidPipelineError` unless these are names, at least one and each once."""
    if isinstance(streams, str) or not streams or len(set(streams)) < len(streams):
        raise InvalidPipelineError(f"streams is a list of different names, one at least. streams={streams!r}")
