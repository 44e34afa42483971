import re

import dagster as dg
import pytest

from dagster_ckpt.integration.dagster_names import distinct_names, job_name_of, op_name_of, stream_name_of

STRANGE = [
    ["a.b"],
    ["a/b"],
    ["a b"],
    ["verspätung"],
    ["遅れ"],
    ["..", "..", "etc"],
    ["%2e%2e"],
    ["a\0b"],
    ["flights", "délai.max"],
]


@pytest.mark.parametrize("path", [["departures"], ["flights", "departures"], ["a-b"]])
def test_an_ordinary_key_keeps_dagsters_own_op_name(path: list[str]) -> None:
    key = dg.AssetKey(path)
    assert op_name_of(key) == key.to_python_identifier()


@pytest.mark.parametrize("path", STRANGE, ids=str)
def test_a_strange_key_gets_a_name_dagster_takes(path: list[str]) -> None:
    key = dg.AssetKey(path)
    assert re.fullmatch("[A-Za-z0-9_]+", op_name_of(key))


def test_distinct_strange_keys_get_distinct_names() -> None:
    assert len({op_name_of(dg.AssetKey(path)) for path in STRANGE}) == len(STRANGE)
    assert op_name_of(dg.AssetKey(["a.b"])) != op_name_of(dg.AssetKey(["a/b"])) != op_name_of(dg.AssetKey(["a", "b"]))


def test_a_job_has_another_name_than_its_op() -> None:
    assert job_name_of("departures") == "departures_job"
    assert job_name_of("departures", "eu") == "eu_departures_job"


def test_keys_that_dagster_spells_alike_get_different_names_in_any_order() -> None:
    keys = [dg.AssetKey(path) for path in (["a__b"], ["a", "b"], ["a-_b"], ["c"])]
    _, nested, hyphen, other = keys
    names = distinct_names({key: op_name_of(key) for key in keys})
    assert len(set(names.values())) == 4
    assert (names[hyphen], names[other]) == ("a__b", "c"), "of one part, and the first of those"
    assert distinct_names({key: op_name_of(key) for key in reversed(keys)}) == names
    assert distinct_names({nested: "a__b"}) == {nested: "a__b"}, "alone it keeps the name that it always had"


def test_a_slash_inside_a_part_is_not_the_one_between_parts() -> None:
    assert stream_name_of(dg.AssetKey(["a", "b"])) == "a/b"
    assert stream_name_of(dg.AssetKey(["a/b"])) == r"a\/b"
