import pyarrow as pa
import pytest

from dagster_ckpt.cli.argument_values import names
from dagster_ckpt.cli.key_arguments import keys_in
from dagster_ckpt.cli.output.result_order import by_epoch_and_key, by_key
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest
from tests.worlds.manifests import a_manifest

NAMES = ["x=y", "x", " around ", ".dot", "[0]", "a.b", ""]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a, b", ["a", "b"]),
        ('["x,y", " a", "b"]', ["x,y", " a", "b"]),
        ("[0]", ["[0]"]),
        ("[0],a", ["[0]", "a"]),
        ('"a"', ['"a"']),
        ("[]", ["[]"]),
        ("1", ["1"]),
    ],
)
def test_columns_are_named_with_commas_between_them_or_as_json(text: str, columns: list[str]) -> None:
    assert names(text) == columns


def manifest_of(columns: list[str]) -> Manifest:
    schema = pa.schema([(name, pa.int64()) for name in columns])
    operator = RunningAggregate.build(tuple(columns), {"n": agg.count()}, InputSpec((), schema), None, None)
    return a_manifest(pipeline=operator.pipeline)


def test_a_key_is_split_behind_the_columns_own_name() -> None:
    words = ["x=y=1", "x=2", " around =3", ".dot=4", "[0]=5", "a.b=6", "=7"]
    found = keys_in(words, manifest_of(NAMES))
    assert {name: values.to_pylist() for name, values in found.items()} == {
        name: [number] for number, name in enumerate(NAMES, start=1)
    }


def test_a_columns_name_alone_is_its_null() -> None:
    assert keys_in(["x=y"], manifest_of(NAMES))["x=y"].to_pylist() == [None]
    assert keys_in(["x=4"], manifest_of(["x"]))["x"].to_pylist() == [4]


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_in_the_order_of_a_key_of_any_name(name: str) -> None:
    table = pa.table({name: [3, None, 1], "v": [1, 2, 3]})
    assert by_key(table, [name])[name].to_pylist() == [1, 3, None]
    changes = table.append_column("_epoch", pa.array([2, 1, 1])).append_column("_change_type", pa.array(["i"] * 3))
    assert by_epoch_and_key(changes, [name])["v"].to_pylist() == [3, 2, 1]
