import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.plan import FULL, QUICK, Race, chosen
from benchmarks.results import load, remove, save
from tests.unit.benchmarks.made_figures import a_race, measured

RACE = measured("native/1M-uniform", a_race(1_000, OURS=0.1, NATIVE=0.2))


def test_no_filter_chooses_all_in_the_plans_order() -> None:
    assert chosen(FULL, "") == list(FULL)


def test_a_part_and_a_cell_are_chosen_by_name() -> None:
    assert chosen(FULL, "commit, growth/10M,growth/1M") == ["growth/1M", "growth/10M", "commit/512x8"]


@pytest.mark.parametrize("word", ["grow", "native/1M", "commits"])
def test_an_unknown_filter_is_refused_with_all_names(word: str) -> None:
    with pytest.raises(ValueError, match=f"name={word}, cells=native/10k-uniform"):
        chosen(FULL, f"commit,{word}")


def test_the_quick_plan_has_every_part_of_the_full_one() -> None:
    assert {cell.partition("/")[0] for cell in QUICK} == {cell.partition("/")[0] for cell in FULL}


def test_each_side_of_the_full_plan_is_in_the_quick_one() -> None:
    full, quick = (
        {side for cell in plan.values() if isinstance(cell, Race) for side in cell.sides} for plan in (FULL, QUICK)
    )
    assert full == quick


def test_cells_come_back_as_they_were_saved(tmp_path: Path) -> None:
    save(tmp_path / "figures", "native/1M-uniform", RACE)
    save(tmp_path / "figures", "commit/512x8", measured("commit/512x8", {"seconds": [0.1]}))
    assert sorted(load(tmp_path / "figures")) == ["commit/512x8", "native/1M-uniform"]
    assert load(tmp_path / "figures")["native/1M-uniform"] == RACE


def test_a_cell_takes_the_place_of_its_older_self_alone(tmp_path: Path) -> None:
    save(tmp_path, "growth/1M", measured("growth/1M", {}))
    save(tmp_path, "growth/10M", measured("growth/10M", {}))
    save(tmp_path, "growth/1M", measured("growth/1M", {}, took_s=99))
    assert {name: each.took_s for name, each in load(tmp_path).items()} == {"growth/1M": 99, "growth/10M": 60}


def test_a_cell_that_was_removed_leaves_the_others(tmp_path: Path) -> None:
    save(tmp_path, "growth/1M", measured("growth/1M", {}))
    save(tmp_path, "growth/10M", measured("growth/10M", {}))
    for _ in range(2):
        remove(tmp_path, "growth/1M")
        assert list(load(tmp_path)) == ["growth/10M"]
    remove(tmp_path / "nothing", "growth/1M")


def test_a_list_of_seconds_takes_one_line(tmp_path: Path) -> None:
    save(tmp_path, "commit/512x8", measured("commit/512x8", {"seconds": [0.1, 0.2]}))
    assert '"seconds": [ 0.1, 0.2 ]' in (tmp_path / "commit.json").read_text()
    json.loads((tmp_path / "commit.json").read_text())


def test_a_cell_is_kept_only_for_the_same_code_settings_and_machine() -> None:
    cell, machine, code = FULL["native/1M-uniform"], RACE.machine, RACE.code
    assert RACE.is_of(cell, machine, code)
    assert not RACE.is_of(cell, machine, "another")
    assert not RACE.is_of(cell, {**machine, "cores": 4}, code)
    assert not RACE.is_of(FULL["native/1M-zipf"], machine, code)
    assert not replace(RACE, settings={**RACE.settings, "rounds": 1}).is_of(cell, machine, code)
