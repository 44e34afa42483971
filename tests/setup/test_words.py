"""Our words: the rules of `scripts/words.py`, and that no layer has more offences than `scripts/words.toml` allows."""

from pathlib import Path

import pytest

from scripts.words import Offence, counts, excess, is_participle_name, load_allowed, offences


def test_no_layer_has_more_offences_than_are_left() -> None:
    assert excess(offences(), load_allowed()) == []


@pytest.mark.parametrize(
    "name", ["made", "_taken", "merged_with", "worked_by", "read_by", "_begun", "unpinned", "found_again", "__moved__"]
)
def test_a_name_that_is_a_participle_is_one(name: str) -> None:
    assert is_participle_name(name)


@pytest.mark.parametrize(
    "name",
    ["merge", "merged_rows", "read", "split_off", "is_made", "has_moved", "seed", "need", "speed_up", "keyed", "of"],
)
def test_a_verb_or_a_noun_is_none(name: str) -> None:
    assert not is_participle_name(name)


def test_each_rule_finds_what_it_is_for(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        '"""Of each file its address."""\n\nclass Place:\n    @property\n    def moved(self) -> bool: ...\n\n'
        '    @property\n    def taken(self) -> int: ...\n\ndef fail():\n    raise ValueError(f"of {1} none")\n'
    )
    (tmp_path / "room").mkdir()
    (tmp_path / "room/two.py").write_text('class Place:\n    """Rows. Of course none. Of two the first."""\n')
    (tmp_path / "three.py").write_text('def name_of(row: Row) -> str:\n    """The name behind a row."""\n')
    found = offences(tmp_path)
    assert [(each.path, each.line, each.rule) for each in found] == [
        ("one.py", 1, "genitive"),
        ("one.py", 8, "participle"),
        ("one.py", 11, "genitive"),
        ("room/two.py", 1, "class twice"),
        ("room/two.py", 2, "genitive"),
        ("three.py", 1, "ends in _of"),
        ("three.py", 2, "behind"),
    ]
    assert counts(found) == {
        "behind": {".": 1},
        "class twice": {"room": 1},
        "ends in _of": {".": 1},
        "genitive": {".": 2, "room": 1},
        "participle": {".": 1},
    }


def test_a_higher_number_is_refused_with_its_places() -> None:
    found = [Offence("lsm/a.py", 3, "participle", "made"), Offence("lsm/b.py", 5, "participle", "taken")]
    assert excess(found, {"participle": {"lsm": 2}}) == []
    first, *places = excess(found, {"participle": {"lsm": 1}})
    assert first.startswith("lsm: 2 times participle, 1 allowed")
    assert places == ["  dagster_ckpt/lsm/a.py:3: made", "  dagster_ckpt/lsm/b.py:5: taken"]
