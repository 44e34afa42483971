"""Random secrets in random addresses of every kind are in nothing that is kept or shown."""

import json
from collections.abc import Mapping
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dagster_ckpt.destinations.delta import DeltaLake
from dagster_ckpt.destinations.iceberg import Iceberg
from dagster_ckpt.destinations.kafka import Kafka
from dagster_ckpt.destinations.kafka_topics import shown_error
from dagster_ckpt.destinations.postgres import Postgres, _server
from dagster_ckpt.destinations.secrets import connection_options, public_address, secrets_hidden, without_secrets
from dagster_ckpt.errors import CheckpointError, InvalidPipelineError
from dagster_ckpt.protocol.redaction import (
    redacted_address,
    redacted_folder,
    redacted_text,
    shown_messages,
    split_user,
)
from dagster_ckpt.storage.stores.address import check_url
from dagster_ckpt.storage.stores.options import StoreOptions

MARK = "hUnTeR"
"""In each part into which the characters of a secret may cut it."""

SECRETS = st.lists(
    st.sampled_from(["#", "?", "/", "[", "]", "@", " ", ":", "%", "&", ";", "+", "\\", "'", '"', "é", ",", "!", "$"]),
    max_size=5,
).map(lambda cuts: MARK + "".join(f"{cut}{MARK}" for cut in cuts))
URLS = {
    "jdbc": "jdbc:postgresql://shop:{}@db:5432/shop",
    "jdbc of another database": "jdbc:mysql://shop:{}@db/shop?ssl=true",
    "Oracle": "jdbc:oracle:thin:shop/{}@//db:1521/shop",
    "web": "https://shop:{}@db/shop/in",
    "S3": "s3a://key:{}@bucket/in",
    "Azure": "wasbs://key:{}@account/in",
    "ftp": "ftp://shop:{}@db/in",
    "catalog": "postgresql+psycopg2://shop:{}@db:5432/catalog",
}


def _is_hidden(*texts: str) -> None:
    for text in texts:
        assert MARK.lower() not in text.lower(), text


def _repeats(url: str, secret: str) -> list[str]:
    """How libraries repeat what they were given."""
    return [
        f'could not connect to "{url}": timeout',
        f"no such host. url={url!r}",
        json.dumps({"uri": url}),
        f"password authentication failed for {secret}",
        f"rejected {quote(secret, safe='')}; {secret!r}",
    ]


@given(SECRETS)
def test_of_postgres(secret: str) -> None:
    url = f"postgresql://shop:{secret}@db:5432/shop"
    to = Postgres(url, table="t")
    assert (to.address, to.table_name) == ("postgresql://db:5432/shop/public.t", "shop.public.t")
    libpq, _, rest = _server(url).removeprefix("postgresql://").partition("@")
    assert rest == "db:5432/shop"
    assert set(libpq).isdisjoint("/?#[]@ ")
    for text in (*_repeats(url, secret), *_repeats(_server(url), secret)):
        _is_hidden(without_secrets(text, {"url": url}))


@given(SECRETS, st.sampled_from([*"&@ '"]))
def test_of_a_dsn_which_is_refused(secret: str, cut: str) -> None:
    dsn = f"host=db port=5432 user=shop password='{secret}{cut}{MARK}' dbname=shop"
    with pytest.raises(InvalidPipelineError) as refused:
        Postgres(dsn, table="t")
    _is_hidden(str(refused.value))


@pytest.mark.parametrize("kind", URLS)
@given(secret=SECRETS)
def test_of_a_source(kind: str, secret: str) -> None:
    url = URLS[kind].format(secret)
    _is_hidden(redacted_address(url), redacted_folder(url), redacted_text(url), redacted_text(f"no file: {url} there"))
    assert redacted_address(url).endswith(redacted_address(URLS[kind].format("x")))


@given(SECRETS)
def test_of_the_parameters_of_a_source(secret: str) -> None:
    assume(not set(secret) & set("/ '\"<>)]},"))  # they would end a parameter
    for url in (f"jdbc:sqlserver://db:1433;user=me;password={secret};ssl=true", f"https://db/in?user=a@b&sig={secret}"):
        _is_hidden(redacted_address(url), redacted_text(url))


@given(SECRETS)
def test_of_iceberg_and_delta(secret: str) -> None:
    for kind in ("catalog", "web", "S3"):
        url = URLS[kind].format(secret)
        options = {"uri": url, "token": f"{secret}1", "credential": f"id:{secret}2"}
        iceberg, delta = Iceberg("shop.t", properties=options), DeltaLake(url, options)
        _is_hidden(
            iceberg.address,
            delta.address,
            repr(iceberg),
            *map(public_address, (url, connection_options(options)["uri"])),
        )
        _, user, rest = split_user(connection_options(options)["uri"])
        assert set(user.partition(":")[2]).isdisjoint("/?#[]@ ")
        assert rest == split_user(url)[2]
        for given_url in (url, connection_options(options)["uri"]):
            for text in (*_repeats(given_url, secret), f"401 for {secret}1", f"401 for {quote(secret + '2')}"):
                _is_hidden(without_secrets(text, options), _raised(text, options))


@given(SECRETS)
def test_of_kafka(secret: str) -> None:
    quoted = secret.replace("\\", "\\\\").replace('"', '\\"')
    config = {
        "sasl.password": secret,
        "sasl.jaas.config": f'org.apache.kafka.PlainLoginModule required username="shop" password="{quoted}1";',
        "ssl.key.pem": f"-----BEGIN {secret}2-----",
    }
    to = Kafka("db:9092,db2:9092", "t", config=config)
    assert to.address == "kafka://db:9092,db2:9092/t"
    settings = {**to.settings(), "bootstrap.servers": "db:9092", "transactional.id": "t"}
    for text in (*_repeats(config["sasl.jaas.config"], secret), f'password="{quoted}1"', f"key {secret}2"):
        _is_hidden(shown_error(text, settings))


@given(SECRETS)
def test_of_a_store(secret: str) -> None:
    for url in ("s3://key:{}@bucket/in", "gs://{}@bucket/in", "abfs://a:{}@b/in", "webhdfs://u:{}@host:9870/in", MARK):
        with pytest.raises(InvalidPipelineError) as refused:
            check_url(url.format(secret))
        _is_hidden(str(refused.value))
    options = StoreOptions({"secret": secret, "connection_string": f"AccountName=shop;AccountKey={secret}1;Suffix=x"})
    for text in (*_repeats(secret, secret), f"wrong key {secret}1"):
        _is_hidden(options.without_secrets(text))


def _raised(text: str, options: Mapping[str, object]) -> str:
    """What an error shows whose cause has this text."""
    with pytest.raises(CheckpointError) as raised, secrets_hidden(options):
        raise CheckpointError("failed") from OSError(text)
    return " ".join(shown_messages(raised.value))
