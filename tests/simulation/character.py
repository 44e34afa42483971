"""What kind of world a seed makes: how fast it goes, who is in it, what goes wrong there and how often."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.storage.stores.retry import Patience
from tests.simulation.graph import PIPELINES, Shape
from tests.simulation.job import APPEND, KEYED

RESHARDS = 0.33
"""In how many worlds somebody reshards the streams now and then."""
QUIET = 0.33
"""In how many worlds streams have event time, and epochs that read nothing."""
ECHOES = 0.2
"""In how many worlds a create may be sent twice, and the second time be done long after retention."""
STEPS = 0.3
"""In how many worlds that do not only append streams have several steps."""
FIRST_WITH_STEPS = 1_000
"""Seeds below were found and written down before there were such streams, and mean what they meant."""
CHANGED_STEPS = 0.5
"""In how many worlds of one stream, which has several steps, its code changes now and then."""
FIRST_WITH_CHANGED_STEPS = 1_200
"""Seeds below were written down before there were such changes."""
REBUILDS = 0.25
"""In how many worlds of one step the stream is rebuilt, over and over."""
FIRST_WITH_REBUILDS = 2_200
"""Seeds below were written down before there were such worlds."""
FULL = 0.33
"""In how many worlds the store takes no writes now and then."""


@dataclass(frozen=True)
class Faults:
    """How likely each is: per request (down to `late_list`), per word of a task, or per second (from `kill` on).

    A doze is a pause where it hurts most: around the create of a manifest or a pin. Who is cut off at such a create
    hears nothing until it gives up, and the create may land at any time. `pauses_ms` are how long whoever pauses, and
    whatever is late, may be; some are longer than the lease, the grace period, retention. A late list shows a time at
    most `list_late_ms` ago.
    """

    lost_request: float
    lost_reply: float
    late: float
    pause: float
    doze: float
    dozes_ms: tuple[int, ...]
    cut_off: float
    late_list: float
    list_late_ms: int
    pauses_ms: tuple[int, ...]
    double_word: float
    late_word: float
    lost_word: float
    decline: float
    speculation: float
    kill: float
    freeze: float
    outage: float


@dataclass(frozen=True)
class Character:
    """A world's constants. `kept` manifests, three or more, are never deleted; `runs_max` runs of a shard become one.

    Where somebody reshards every `reshard_ms` or so (0: nobody does) a part of their hashes may do so: `slices`.
    `full` is how often in a second the store stops to take what is written. Where it is `quiet`, drivers make epochs of
    their own: where sources begin, for idle inputs, at the end of the input, for what is due. `echo` is how likely the
    create of a manifest is sent a second time. `shape` is that of streams of several steps, None of those of one.
    """

    append: bool
    shards: int
    retained: int
    kept: int
    grace_ms: int
    lease_timeout_ms: int
    patience: Patience
    latency_ms_max: int
    epoch_pause_ms: int
    collect_every_ms: int
    timeout_ms: int
    runs_max: int
    tail_max: int
    merged: int
    epochs_max: int
    by_hand_every_ms: int
    pinners: int
    collectors: int
    readers: int
    requests_max: int
    faults: Faults
    reshard_ms: int = 0
    slices: bool = False
    full: float = 0.0
    quiet: bool = False
    echo: float = 0.0
    shape: Shape | None = None

    @property
    def pipeline(self) -> Pipeline:
        """That of streams that read sources."""
        if self.append:
            return APPEND
        return KEYED if self.shape is None else PIPELINES[self.shape]


def character_of(chance: Random) -> Character:
    """Drawn so that worlds differ much: in many of them one kind of thing goes wrong often, in some none does."""
    grace_ms = chance.choice([20_000, 20_000, 60_000])
    lease_timeout_ms = chance.choice([6_000, 15_000, 30_000])
    return Character(
        append=chance.random() < 0.3,
        shards=chance.choice([1, 2, 2, 4]),
        retained=chance.choice([1, 2, 3, 6]),
        kept=chance.choice([3, 3, 4, 16]),
        grace_ms=grace_ms,
        lease_timeout_ms=lease_timeout_ms,
        patience=chance.choice([Patience(100, 50, 50), Patience(2_000, 50, 500), Patience(20_000, 100, 5_000)]),
        latency_ms_max=chance.choice([20, 20, 100, 2_000]),
        epoch_pause_ms=round(grace_ms * chance.choice([0, 0.02, 0.1, 0.3])),
        collect_every_ms=round(grace_ms * chance.choice([0.2, 0.5, 1.5])),
        timeout_ms=chance.choice([5_000, 60_000]),
        runs_max=chance.choice([2, 3, 6]),
        tail_max=chance.choice([2, 4]),
        merged=chance.choice([2, 3]),
        epochs_max=chance.choice([2, 5, 1_000]),
        by_hand_every_ms=chance.choice([10_000, 40_000, 150_000]),
        pinners=chance.choice([0, 1, 2]),
        collectors=chance.choice([0, 1, 1, 2]),
        readers=chance.choice([0, 1, 2]),
        requests_max=chance.choice([500, 1_000, 1_500]),
        faults=_faults(chance, grace_ms, lease_timeout_ms),
    )


def with_resharding(character: Character, chance: Random) -> Character:
    """With somebody who reshards, in a share of the worlds; drawn by itself, so that all others are as they were."""
    if chance.random() >= RESHARDS:
        return character
    reshard_ms = round(character.grace_ms * chance.choice([0.1, 0.3, 1]))
    return replace(character, reshard_ms=reshard_ms, slices=chance.random() < 0.5)


def with_quiet_epochs(character: Character, chance: Random) -> Character:
    """With event time, in a share of the worlds."""
    return replace(character, quiet=True) if chance.random() < QUIET else character


def with_echoes(character: Character, chance: Random) -> Character:
    """With creates that are sent twice, in a share of the worlds."""
    return replace(character, echo=0.5) if chance.random() < ECHOES else character


def with_steps(character: Character, seed: int) -> Character:
    """With streams of several steps, in a share of the worlds from `FIRST_WITH_STEPS` on; drawn by itself."""
    chance = Random(f"steps 244 of {seed}")  # such that no seed that was written down before gets another world
    if seed < FIRST_WITH_STEPS or character.append or chance.random() >= STEPS:
        return character
    return replace(character, shape=chance.choice(["chain", "diamond"]))


def with_a_full_store(character: Character, chance: Random) -> Character:
    """With a store that is full at times, in a share of the worlds; drawn by itself, so that all others stay."""
    return replace(character, full=chance.choice([0.02, 0.05])) if chance.random() < FULL else character


def _faults(chance: Random, grace_ms: int, lease_timeout_ms: int) -> Faults:
    def rate(*rates: float) -> float:
        return chance.choice(rates) if chance.random() < 0.5 else 0.0

    return Faults(
        lost_request=rate(0.01, 0.05),
        lost_reply=rate(0.01, 0.05),
        late=rate(0.01, 0.05),
        pause=rate(0.003, 0.01, 0.03),
        doze=rate(0.02, 0.06),
        dozes_ms=(2 * lease_timeout_ms, 4 * grace_ms, 12 * grace_ms),
        cut_off=rate(0.03, 0.1),
        late_list=rate(0.2, 0.8),
        list_late_ms=chance.randrange(grace_ms),
        pauses_ms=_pauses(chance, grace_ms, lease_timeout_ms),
        double_word=rate(0.02),
        late_word=rate(0.05, 0.3),
        lost_word=rate(0.02, 0.1),
        decline=rate(0.02, 0.1),
        speculation=rate(0.1, 0.5),
        kill=rate(0.01, 0.03),
        freeze=rate(0.01, 0.03),
        outage=rate(0.005, 0.02),
    )


def _pauses(chance: Random, grace_ms: int, lease_timeout_ms: int) -> tuple[int, ...]:
    scales: Sequence[int] = [200, lease_timeout_ms // 2, 2 * lease_timeout_ms, grace_ms, 3 * grace_ms, 10 * grace_ms]
    return tuple(chance.sample(scales, chance.randrange(1, 5)))


def gentle(character: Character, epoch_pause_ms: int, requests_max: int) -> Character:
    """The character of a world whose store nearly always answers, so that streams get far."""
    faults, rare = character.faults, 0.002
    faults = replace(
        faults,
        lost_request=min(faults.lost_request, rare),
        lost_reply=min(faults.lost_reply, rare),
        late=min(faults.late, rare),
        cut_off=min(faults.cut_off, rare),
        outage=0.0,
        lost_word=0.0,
        decline=0.0,
    )
    return replace(
        character,
        faults=faults,
        full=0.0,
        patience=Patience(20_000, 100, 5_000),
        latency_ms_max=20,
        epochs_max=1_000,
        epoch_pause_ms=epoch_pause_ms,
        collect_every_ms=max(character.collect_every_ms, 20_000),
        collectors=min(character.collectors, 1),
        by_hand_every_ms=max(character.by_hand_every_ms, 60_000),
        reshard_ms=3 * character.reshard_ms,
        requests_max=requests_max,
        pinners=0,
        readers=0,
    )
