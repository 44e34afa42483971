import pickle
from collections.abc import Mapping

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.over_fsspec.places import s3_options, s3_place

WHAT_USERS_WRITE: list[Mapping[str, object]] = [
    {},
    {"anon": True},
    {"key": "k", "secret": "s", "token": "t", "endpoint_url": "https://s3.example.org:9000/"},
    {"profile": "streams", "client_kwargs": {"region_name": "eu-central-1", "verify": "/etc/ca.pem"}},
    {"config_kwargs": {"s3": {"addressing_style": "path"}, "read_timeout": 5, "proxies": {"https": "http://u:p@x"}}},
    {"s3_additional_kwargs": {"ServerSideEncryption": "aws:kms"}, "requester_pays": False, "use_ssl": True},
]


@pytest.mark.parametrize("given", WHAT_USERS_WRITE)
def test_what_users_of_s3fs_write_is_taken_and_travels(given: Mapping[str, object]) -> None:
    address = StoreAddress("s3://bucket/x", given)
    again = pickle.loads(pickle.dumps(address))
    assert again.options == given
    assert again.open().url == "s3://bucket/x"


@pytest.mark.parametrize(
    "rest",
    [
        "//user:hunter2@bucket/x",
        "//hunter2@bucket",
        "//bucket/x?key=hunter2",
        "//bucket/x#hunter2",
        "//bucket:hunter2/x",
        "hunter2:x@bucket",
    ],
)
def test_a_url_with_a_secret_is_refused_without_telling_it(rest: str) -> None:
    with pytest.raises(InvalidPipelineError, match="keys and passwords go into storage_options") as caught:
        s3_place(rest)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "rest", ["bucket/x", "/bucket/x", "//", "///x", "//b/x", "//bu cket/x", "//bucket/../x", "//bucket/a//b", "//-b-/x"]
)
def test_a_url_that_does_not_name_one_folder_is_refused(rest: str) -> None:
    with pytest.raises(InvalidPipelineError, match="an S3 store is named s3://bucket/folder"):
        s3_place(rest)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"secrt": "hunter2"}, r"no such options: remove them\. options=\['secrt'\], known=\['anon', 'client_kwargs'"),
        ({"use_listings_cache": True}, "no such options"),
        ({"session": object()}, "no such options"),
        ({"key": b"hunter2"}, r"texts, numbers, lists and dicts\. option=key, type=bytes"),
        ({"client_kwargs": {"verify": object()}}, "option=client_kwargs, type=dict"),
        ({"client_kwargs": "hunter2"}, r"a dict\. option=client_kwargs, type=str"),
        ({"config_kwargs": {"retries": {"max_attempts": 5}}}, "remove the option"),
        ({"endpoint_url": "http://user:hunter2@host"}, "without a user or a password"),
        ({"client_kwargs": {"endpoint_url": "http://hunter2@host"}}, "without a user or a password"),
        ({"endpoint_url": "host:9000"}, r"named http://host:port"),
        ({"endpoint_url": "http://[hunter2"}, r"named http://host:port"),
        ({"endpoint_url": 9000}, r"named http://host:port"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name_alone(given: Mapping[str, object], error: str) -> None:
    with pytest.raises(InvalidPipelineError, match=error) as caught:
        s3_options(given)
    assert "hunter2" not in str(caught.value)


def test_no_option_is_shown() -> None:
    assert "hunter2" not in repr(s3_options({"secret": "hunter2", "client_kwargs": {"aws_session_token": "hunter2"}}))


def test_a_text_loses_all_that_options_hide_and_keeps_its_words() -> None:
    options = s3_options({"key": "abc", "secret": "hunter2", "config_kwargs": {"a": [{"b": "hunter2-longer"}]}})
    text = options.without_secrets("hunter2-longer hunter2 abc https://me:pw@host/x?y=1 me@host")
    assert text == "*** *** abc https://***@host/x?y=1 me@host"


def test_the_password_of_a_proxy_is_hidden_wherever_it_turns_up() -> None:
    options = s3_options({"config_kwargs": {"proxies": {"https": "http://someone:hunter2@10.0.0.1:3128"}}})
    assert options.without_secrets("someone, hunter2 and http://someone:hunter2@10.0.0.1:3128") == "***, *** and ***"
