"""What accounts with a hierarchical namespace show: folders as blobs with a mark. Azurite has none; it keeps marks."""

from uuid import uuid4

import pytest
from azure.core.utils import parse_connection_string
from azure.storage.blob import BlobServiceClient

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectMissingError
from tests.servers.emulators import BUCKET


def test_the_blob_that_stands_for_a_folder_is_no_object(azure_root: StoreAddress) -> None:
    folder = uuid4().hex
    store = StoreAddress(f"{azure_root.url}/{folder}", azure_root.options).open()
    store.put("a/b", b"x")
    with BlobServiceClient.from_connection_string(str(azure_root.options["connection_string"])) as client:
        client.get_blob_client(BUCKET, f"{folder}/a").upload_blob(b"", metadata={"hdi_isfolder": "true"})
    assert list(store.list("")) == ["a/b"]
    assert not store.exists("a")
    with pytest.raises(ObjectMissingError):
        store.modified_ms("a")


def test_a_blob_with_snapshots_is_deleted(azure_root: StoreAddress) -> None:
    folder = uuid4().hex
    store = StoreAddress(f"{azure_root.url}/{folder}", azure_root.options).open()
    store.put("a", b"x")
    with BlobServiceClient.from_connection_string(str(azure_root.options["connection_string"])) as client:
        client.get_blob_client(BUCKET, f"{folder}/a").create_snapshot()
    store.delete("a")
    assert not store.exists("a")


@pytest.mark.parametrize("other", ["AccountName=other;AccountKey=aHVudGVyMg==;", "BlobEndpoint=https://other.host/;"])
def test_a_connection_of_the_environment_to_another_account_is_refused(
    monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    store = StoreAddress("abfs://container/a", {"account_name": "shop", "account_key": "aHVudGVyMg=="}).open()
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"DefaultEndpointsProtocol=https;{other}")
    with pytest.raises(InvalidPipelineError, match="AZURE_STORAGE_CONNECTION_STRING leads to another") as caught:
        store.get("a")
    assert "aHVudGVyMg" not in str(caught.value)


def test_a_connection_of_the_environment_to_this_account_is_followed(
    azure_root: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = str(azure_root.options["connection_string"])
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
    account = parse_connection_string(connection)["accountname"]
    assert not StoreAddress(f"{azure_root.url}/{uuid4().hex}", {"account_name": account}).open().exists("a")
