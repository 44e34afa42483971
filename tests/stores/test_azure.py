"""What accounts with a hierarchical namespace show: folders as blobs with a mark. Azurite has none; it keeps marks."""

from uuid import uuid4

import pytest
from azure.storage.blob import BlobServiceClient

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
