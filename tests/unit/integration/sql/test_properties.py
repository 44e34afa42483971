"""TBLPROPERTIES are the options of the asset."""

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.asset_options import AssetOptions
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.sql.properties import OPTIONS, Property, read_properties
from dagster_ckpt.integration.sql.sql_file import FileLine

PLACE = FileLine("shop.sql", 3)


def properties(**given: str) -> list[Property]:
    return [Property(name, value, PLACE) for name, value in given.items()]


def test_each_property_is_an_option_of_its_type() -> None:
    given = {
        "dagster_ckpt.mode": "continuous",
        "dagster_ckpt.interval": "10 seconds",
        "dagster_ckpt.run_for": "1 hour",
        "dagster_ckpt.autostart": "TRUE",
        "dagster_ckpt.shards": "4",
        "dagster_ckpt.tasks": "2",
        "dagster_ckpt.max_epochs_per_batch": "7",
        "dagster_ckpt.group": "shop",
        "dagster_ckpt.owners": "team:shop, a@example.com",
        "dagster_ckpt.tags": "domain=shop, gold",
        "dagster_ckpt.kinds": "sql",
        "dagster_ckpt.run_tags": "team=shop",
        "dagster_ckpt.code_version": "7",
        "dagster_ckpt.pool": "spark",
        "dagster_ckpt.primary_key": "station, hour",
        "dagster_ckpt.recovery.max_attempts": "9",
        "dagster_ckpt.recovery.backoff": "1s",
        "dagster_ckpt.reads": "orders, db.buyers",
        "quality": "gold",
    }
    read = read_properties(properties(**given))
    assert read.options == {
        "mode": "continuous",
        "checkpoint_interval": "10 seconds",
        "run_for": "1 hour",
        "autostart": True,
        "shards": 4,
        "tasks": 2,
        "max_epochs_per_batch": 7,
        "group_name": "shop",
        "owners": ["team:shop", "a@example.com"],
        "tags": {"domain": "shop", "gold": ""},
        "kinds": {"sql"},
        "run_tags": {"team": "shop"},
        "code_version": "7",
        "pool": "spark",
        "primary_key": ["station", "hour"],
        "recovery": Recovery(max_attempts=9, backoff="1s"),
    }
    assert read.reads == ("orders", "db.buyers")
    assert read.metadata == {"quality": "gold"}
    assert {name.removeprefix("dagster_ckpt.") for name in given if name.startswith("dagster_ckpt.")} >= {*OPTIONS}


def test_properties_are_options_of_streaming_assets() -> None:
    assert {option for option, _ in OPTIONS.values()} <= AssetOptions.__annotations__.keys()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("dagster_ckpt.intervall", "1s", "unknown property. Did you mean 'dagster_ckpt.interval'?"),
        ("dagster_ckpt.checkpoint_interval", "1s", "Did you mean 'dagster_ckpt.interval'?"),
        ("dagster_ckpt.group_name", "a", "Did you mean 'dagster_ckpt.group'?"),
        ("dagster_ckpt.recovery.max_attempt", "1", "Did you mean 'dagster_ckpt.recovery.max_attempts'?"),
        ("dagster_ckpt.qqq", "1", "unknown property. name=dagster_ckpt.qqq"),
        ("dagster_ckpt.retained", "7", "CheckpointCoordinatorResource(retained=...)"),
        ("dagster_ckpt.expire_after", "1 day", "rows expire by what the query says"),
        ("dagster_ckpt.shards", "four", "this takes a whole number. name=dagster_ckpt.shards, value=four"),
        ("dagster_ckpt.recovery.max_attempts", "x", "this takes a whole number"),
        ("dagster_ckpt.autostart", "yes", "this is true or false"),
        ("shards", "4", "write 'dagster_ckpt.shards'"),
        ("recovery.backoff", "1s", "write 'dagster_ckpt.recovery.backoff'"),
        ("dagster-ckpt.shards", "4", "begin with dagster_ckpt. Did you mean 'dagster_ckpt.shards'?"),
    ],
)
def test_what_is_no_option_is_refused_with_its_line(name: str, value: str, expected: str) -> None:
    with pytest.raises(InvalidPipelineError) as refused:
        read_properties(properties(**{name: value}))
    assert expected in str(refused.value)
    assert str(refused.value).endswith("file=shop.sql, line=3")
