import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from tests.chaos.cluster import Cluster, Standing
from tests.chaos.delivery.fire import Kill, Kind, Outcome, Rounds
from tests.chaos.delivery.results import lines_of
from tests.chaos.delivery.targets import OLD_KEYS, ROWS_A_KEY, STREAMS, TARGETS
from tests.chaos.lanes import Wrong
from tests.chaos.results import summary


@dataclass
class _World:
    """What rounds ask of the cluster."""

    now: dict[str, Standing] = field(default_factory=dict)

    def standing(self, lane: str) -> Standing:
        return self.now[lane]


def _rounds(world: _World | None = None) -> Rounds:
    cluster = cast(Cluster, cast(Any, world or _World()))
    return Rounds(cluster, cast(Any, None), random.Random(1), [*TARGETS], {}, {})


@pytest.mark.parametrize("kills", [1, 4, 10])
def test_each_destination_meets_so_many_kills_a_round(kills: int) -> None:
    lanes = {lane.name: lane.kinds for lane in _rounds()._lanes(kills)}
    met = {name: len(lanes[name]) + len(lanes[target.stream]) for name, target in TARGETS.items()}
    assert met == dict.fromkeys(TARGETS, kills)
    if kills == 10:
        assert Counter(lanes["postgres"]) == {Kind.DELIVERY: 5, Kind.SERVER: 2, Kind.BOTH: 1}
        assert Counter(lanes["delta"]) == {Kind.DELIVERY: 8}


def test_a_kill_is_over_when_rows_come_and_not_when_a_position_is_recorded() -> None:
    world = _World({"delta": Standing(term=2, epoch=6, rows=100)})
    kill = Kill("delta", Kind.DELIVERY, Standing(term=1, epoch=5, rows=100), at_s=0.0)
    over = []
    for rows in (100, 101):
        world.now["delta"] = Standing(term=2, epoch=7, rows=rows)
        _rounds(world)._look(Outcome([kill]))
        over.append(kill.seconds is not None)
    assert over == [False, True]


def _keyed(rows: pd.DataFrame) -> pd.DataFrame:
    old = OLD_KEYS + rows["id"] // ROWS_A_KEY
    keyed = rows.assign(key=np.where(rows["id"] % 2 == 0, old, rows["key"]))
    groups = keyed.groupby("key")["value"]
    return pd.DataFrame({"rows": groups.size(), "total": groups.sum(), "greatest": groups.max()}).reset_index()


def test_a_table_that_lacks_rows_of_the_past_or_has_them_twice_is_wrong() -> None:
    rows = pd.DataFrame({"id": range(1_000), "key": np.arange(1_000) % 7, "value": np.arange(1_000) % 13})
    judge, table = STREAMS["keyed"], _keyed(rows)
    assert judge(table, rows) == Wrong()
    lost = table[table["key"] != OLD_KEYS + 3]
    assert judge(lost, rows) == Wrong(lost=ROWS_A_KEY // 2)
    doubled = table.assign(rows=table["rows"].where(table["key"] != 5, table["rows"] * 2))
    assert judge(doubled, rows).doubled == table.set_index("key").loc[5, "rows"]


def test_what_one_destination_has_lost_is_no_others_and_what_was_not_compared_is_unproved() -> None:
    before = Standing()
    kills = [Kill(name, Kind.DELIVERY, before, 0.0, seconds=3.0) for name in ("delta", "delta", "postgres", "parquet")]
    outcome = Outcome(kills, {"delta": Wrong(lost=5, other=1), "postgres": Wrong()})
    table = summary(lines_of(outcome, {"seed": 1}, 0), "destination")
    found = list(zip(*(list(column.cells) for column in table.columns), strict=True))
    assert ("delta", "2", "3.0", "3.0", "3.0", "0", "6", "0") in found
    assert ("postgres", "1", "3.0", "3.0", "3.0", "0", "0", "0") in found
    assert ("parquet", "1", "3.0", "3.0", "3.0", "1", "0", "0") in found
    assert found[-1] == ("all", "4", "3.0", "3.0", "3.0", "1", "6", "0")
