"""What `dg check yaml` says of a mistake: the JSON schema's error, at the place of the mistake."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from dagster_ckpt import StreamingComponent
from dagster_ckpt.integration.component.attribute_schema import with_exact_errors

SCHEMA = StreamingComponent.model().model_json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
WHOLE = """
asset: {key: a, tags: {tier: gold}, metadata: {rows: [1]}, owners: ["team:shop"]}
source: {format: parquet, path: "/data/{{ env.IN }}", schema: a int, options: {maxFilesPerTrigger: 1, x: "1", y: true}}
steps:
  - select: [a]
  - where: a > 1
  - with_columns: {b: a + 1}
  - with_watermark: {column: at, delay: 1 hour, idle_after: 1 minute}
  - key_by: [a]
  - key_by: {columns: [a], expire_after: 1 day}
  - window: {hopping: 1 hour, slide: 1 minute, early: true, late: keep, on_end: flush}
  - aggregate: {n: count(), s: {sum: a}, c: {collect: a, limit: 3}}
  - deduplicate: {}
  - over: {by: [a asc], functions: {n: row_number(), s: {sum: a, rows: [null, 0]}, b: {lag: a, default: 0}}}
mode: continuous
shards: 16
recovery: {max_attempts: 2, backoff: 1s}
checks: [.checks.a, {check: .checks.b, every_epochs: 3}]
checkpoints: {url: "file:///a", retained: 5, storage_options: {client_kwargs: {verify: false}}}
state: {io_threads: 3}
spark: {spark.master: "local[1]", spark.ui.enabled: false}
"""


def errors(text: str) -> list[tuple[str, str]]:
    found = VALIDATOR.iter_errors(yaml.safe_load(text))
    return [("/".join(map(str, each.absolute_path)), each.message) for each in found]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert errors(WHOLE) == []


def test_a_template_may_stand_for_any_value() -> None:
    of_each = dict.fromkeys(SCHEMA["properties"], "{{ mine }}")
    assert list(VALIDATOR.iter_errors(of_each)) == []


@pytest.mark.parametrize(
    ("mistake", "place", "message"),
    [
        ("mode: continous", "mode", "'continous' is not one of ['available_now', 'continuous']"),
        ("tasks: eight", "tasks", "'eight' is not of type 'integer'"),
        ("source: rate", "source", "'rate' is not of type 'object'"),
        ("shards: eight", "shards", "'eight' is not of type 'integer'"),
        ("autostart: 3", "autostart", "3 is not of type 'boolean'"),
        ("source: {formt: rate, format: rate}", "source", "('formt' was unexpected)"),
        ("source: {path: /data}", "source", "'format' is a required property"),
        ("source: {format: rate, options: {a: [1]}}", "source/options/a", "[1] is not valid"),
        ("steps: [{agregate: {}}]", "steps/0", "('agregate' was unexpected)"),
        ("steps: [{where: a, select: [a]}]", "steps/0", "has too many properties"),
        ("steps: [{}]", "steps/0", "{} should be non-empty"),
        ("steps: {where: a}", "steps", "is not of type 'array'"),
        ("steps: [{key_by: a}]", "steps/0/key_by", "'a' is not of type 'object'"),
        ("steps: [{key_by: {colums: [a], columns: [a]}}]", "steps/0/key_by", "('colums' was unexpected)"),
        ("steps: [{window: {tumbling: 5}}]", "steps/0/window/tumbling", "5 is not of type 'string'"),
        ("steps: [{window: {late: never}}]", "steps/0/window/late", "'never' is not one of ['drop', 'keep']"),
        ("steps: [{aggregate: {n: count}}]", "steps/0/aggregate/n", "'count()' was expected"),
        ("steps: [{aggregate: {n: {mean: a}}}]", "steps/0/aggregate/n", "('mean' was unexpected)"),
        ("checks: [{every_epochs: 3}]", "checks/0", "'check' is a required property"),
        ("checkpoints: {url: a, retained: many}", "checkpoints/retained", "'many' is not of type 'integer'"),
        ("spark: {spark.master: []}", "spark/spark.master", "[] is not valid"),
        ("sinks: []", "", "('sinks' was unexpected)"),
    ],
)
def test_a_mistake_is_named_at_its_place(mistake: str, place: str, message: str) -> None:
    [(found, said)] = errors(f"asset: {{key: a}}\n{mistake}")
    assert (found, message in said) == (place, True), said


def test_tools_that_show_the_schema_find_its_alternatives() -> None:
    alternatives = {name: each.get("anyOf", []) for name, each in SCHEMA["properties"].items()}
    assert {"$ref": "#/$defs/SourceModel"} in alternatives["source"]
    assert {"type": "array", "items": {"$ref": "#/$defs/StepModel"}} in alternatives["steps"]
    assert {"type": "integer"} in alternatives["shards"]


def test_an_asset_without_a_key_is_named() -> None:
    assert errors("asset: {description: a}") == [("asset", "'key' is a required property")]
    assert errors("mode: continuous") == [("", "'asset' is a required property")]


def test_alternatives_of_one_type_stay_alternatives() -> None:
    schema = with_exact_errors(
        {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]}
    )
    assert [list(Draft202012Validator(schema).iter_errors(each)) for each in ({"a": 1}, {"b": 1})] == [[], []]
    assert list(Draft202012Validator(schema).iter_errors({"c": 1})) != []
    anything = {"anyOf": [{}, {"type": "string"}]}
    assert with_exact_errors(anything) == anything


def properties(node: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(node, Mapping):
        for name, schema in node.get("properties", {}).items():
            yield f"{path}/{name}", schema
        for name, each in node.items():
            yield from properties(each, f"{path}/{name}")


def test_each_attribute_is_documented() -> None:
    ours = [(path, each) for path, each in properties(SCHEMA) if "PartitionsDefinitionModel" not in path]
    assert len(ours) > 80
    assert [path for path, each in ours if not each.get("description")] == []
