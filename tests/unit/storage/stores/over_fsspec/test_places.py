import json
from urllib.parse import quote, quote_plus

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.stores.over_fsspec.places import (
    azure_options,
    azure_place,
    gs_options,
    gs_place,
    webhdfs_options,
    webhdfs_place,
)


def test_a_url_names_a_bucket_and_a_folder() -> None:
    assert gs_place("//bucket/a/folder/").url == "gs://bucket/a/folder"
    assert gs_place("//bucket").url == gs_place("//bucket/").url == "gs://bucket"
    assert azure_place("//container/a").url == "abfs://container/a"


def test_a_url_names_a_server_and_a_folder() -> None:
    place = webhdfs_place("//namenode.example.org:9870/checkpoints/a/")
    assert (place.host, place.port, place.folder) == ("namenode.example.org", 9870, "checkpoints/a")
    assert place.url == "webhdfs://namenode.example.org:9870/checkpoints/a"


@pytest.mark.parametrize("rest", ["", "bucket/a", "///a", "//bucket/a b", "//bucket/../x", "//b"])
def test_what_names_no_bucket_is_shown(rest: str) -> None:
    with pytest.raises(InvalidPipelineError, match=r"named gs://bucket/folder.*url="):
        gs_place(rest)


@pytest.mark.parametrize("rest", ["//host/a", "//host:9870", "//host:9870/", "host:9870/a", "//host:x/a", "//:9870/a"])
def test_what_names_no_server_or_its_root_is_refused(rest: str) -> None:
    with pytest.raises(InvalidPipelineError, match="named webhdfs://host:port/folder"):
        webhdfs_place(rest)


@pytest.mark.parametrize("rest", ["//user:hunter2@bucket/a", "//bucket/a?token=hunter2", "//bucket/a#hunter2"])
def test_a_url_with_a_secret_is_refused_and_not_shown(rest: str) -> None:
    for place in (gs_place, azure_place, webhdfs_place):
        with pytest.raises(InvalidPipelineError, match="keys and passwords go into storage_options") as caught:
            place(rest)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("options", [gs_options, azure_options, webhdfs_options])
def test_an_unknown_option_is_refused_without_its_value(options: object) -> None:
    assert callable(options)
    with pytest.raises(InvalidPipelineError, match=r"no such options.*options=\['sceret'\]") as caught:
        options({"sceret": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_options_that_cannot_be_sent_to_other_processes_are_refused() -> None:
    with pytest.raises(InvalidPipelineError, match=r"sent to other processes.*option=data_proxy"):
        webhdfs_options({"data_proxy": lambda url: url})
    with pytest.raises(InvalidPipelineError, match=r"this option is a dict\. option=data_proxy"):
        webhdfs_options({"data_proxy": "x"})


def test_an_endpoint_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidPipelineError, match="credentials are the option token") as caught:
        gs_options({"endpoint_url": "http://user:hunter2@host"})
    assert "hunter2" not in str(caught.value)


def test_the_parts_of_a_connection_string_and_a_signature_are_secrets() -> None:
    text = "AccountName=shop;AccountKey=hunter2==;BlobEndpoint=http://host/shop"
    checked = azure_options({"connection_string": text, "sas_token": "?sv=2024&sig=hunter%2Fthree", "anon": False})
    assert "hunter" not in repr(checked)
    said = checked.without_secrets("signed hunter2==, hunter/three and hunter%2Fthree for the account shop at host")
    assert said == "signed ***, *** and *** for the account shop at host"


def test_the_content_of_a_key_file_as_text_is_no_access_token() -> None:
    key = {"type": "service_account", "private_key": "hunter2\n"}
    assert gs_options({"token": f"\n{json.dumps(key)}"}).given == {"token": key}
    assert gs_options({"token": "/etc/streams/key.json"}).given == {"token": "/etc/streams/key.json"}
    with pytest.raises(InvalidPipelineError, match="no JSON object") as caught:
        gs_options({"token": '{"private_key": "hunter2'})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_secret_in_an_address_is_hidden() -> None:
    checked = gs_options({"token": "hunter 2/+{}"})
    assert checked.without_secrets(f"no {quote('hunter 2/+{}', safe='')} {quote_plus('hunter 2/+{}')}") == "no *** ***"
