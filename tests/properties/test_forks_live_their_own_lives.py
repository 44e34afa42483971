"""Streams that fork at any epoch, again and again, go on with rows of their own and are collected: each is its dict."""

from dataclasses import replace
from uuid import uuid4

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.storage.operations.collector import Collector
from tests.unit.history.made_streams import MadeStream, departures
from tests.unit.state.epochs import EAGER

CARRIERS: list[str | None] = ["AA", "UA", "DL", "WN", None]
RETAINED = 3
Flights = dict[str | None, int]


class Forks(RuleBasedStateMachine):
    """`epochs` has for each stream what each of its epochs showed; those from `kept` on are retained."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, MadeStream] = {}
        self.epochs: dict[str, dict[int, Flights]] = {}
        self.retained: dict[str, list[int]] = {}
        self.store = CheckpointStore(f"memory://{uuid4().hex}")

    @initialize()
    def begin(self) -> None:
        self.made["s0"] = MadeStream(self.store.url, "s0", retained=RETAINED, limits=EAGER)
        self.epochs["s0"], self.retained["s0"] = {0: {}}, []
        self.commit(0, {"UA": 1, "AA": 1})

    @rule(which=st.integers(0, 9), rows=st.dictionaries(st.sampled_from(CARRIERS), st.integers(1, 3), max_size=4))
    def commit(self, which: int, rows: Flights) -> None:
        name = self._name(which)
        if name not in self.made:
            self.made[name] = replace(self.made["s0"], name=name)
        shown = dict(self.epochs[name][max(self.epochs[name])])
        epoch = self.made[name].commit(departures({carrier: [1.0] * count for carrier, count in rows.items()}))
        for carrier, count in rows.items():
            shown[carrier] = shown.get(carrier, 0) + count
        self.epochs[name][epoch] = shown
        self.retained[name] = [*self.retained[name], epoch][-RETAINED:]

    @rule(which=st.integers(0, 9), back=st.integers(0, RETAINED))
    def fork(self, which: int, back: int) -> None:
        name, new = self._name(which), f"s{len(self.epochs)}"
        if len(self.epochs) == 6:
            return
        epoch = ([0, *self.retained[name]])[-1 - back % (1 + len(self.retained[name]))]
        self._history(name).fork(new, epoch)
        self.epochs[new] = {0: {}, **({1: self.epochs[name][epoch]} if epoch else {})}
        self.retained[new] = [1] if epoch else []

    @rule(which=st.integers(0, 9), mine=st.booleans())
    def collect(self, which: int, mine: bool) -> None:
        name = self._name(which)
        history = self._history(name)
        writer = self.made[name].writer.term if mine and name in self.made else None
        Collector(history._chain, history._root, grace_ms=-1_000).collect(writer)

    @rule(which=st.integers(0, 9))
    def open_anew(self, which: int) -> None:
        if (made := self.made.get(self._name(which))) is not None:
            made.open()

    @invariant()
    def every_retained_epoch_is_its_dict(self) -> None:
        for name, retained in self.retained.items():
            for epoch in retained:
                table = self._history(name).read(epoch)
                shown = dict(zip(table["carrier"].to_pylist(), table["flights"].to_pylist(), strict=True))
                assert shown == self.epochs[name][epoch], (name, epoch)

    def teardown(self) -> None:
        for name in self.epochs:
            assert self._history(name).verify().whole
        for made in self.made.values():
            made.close()

    def _name(self, which: int) -> str:
        return sorted(self.epochs)[which % len(self.epochs)]

    def _history(self, name: str) -> StreamHistory:
        return self.store.stream(name)


TestForks = Forks.TestCase
TestForks.settings = settings(max_examples=5, stateful_step_count=20, deadline=None)
