"""From a place and options to a store. The library of a protocol is loaded when it is needed: it takes a second."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dagster_ckpt.errors import OutsideCodeError
from dagster_ckpt.storage.stores.over_fsspec.places import (
    azure_options,
    azure_place,
    gs_options,
    gs_place,
    s3_options,
    s3_place,
    webhdfs_options,
    webhdfs_place,
)
from dagster_ckpt.storage.stores.over_fsspec.store import FsspecObjectStore


def open_s3(rest: str, options: Mapping[str, object]) -> FsspecObjectStore:
    place, checked = s3_place(rest), s3_options(options)
    with _needs("an S3 store needs s3fs", "s3", place.url):
        from dagster_ckpt.storage.stores.over_fsspec.s3 import S3Calls
    return FsspecObjectStore(place.url, place.folder, S3Calls(place.bucket, checked))


def open_gs(rest: str, options: Mapping[str, object]) -> FsspecObjectStore:
    place, checked = gs_place(rest), gs_options(options)
    with _needs("a store on Google Cloud Storage needs gcsfs", "gcs", place.url):
        from dagster_ckpt.storage.stores.over_fsspec.gs import GoogleCalls
    return FsspecObjectStore(place.url, place.folder, GoogleCalls(place.bucket, checked))


def open_azure(rest: str, options: Mapping[str, object]) -> FsspecObjectStore:
    place, checked = azure_place(rest), azure_options(options)
    with _needs("a store on Azure needs adlfs", "azure", place.url):
        from dagster_ckpt.storage.stores.over_fsspec.azure import AzureCalls
    return FsspecObjectStore(place.url, place.folder, AzureCalls(place.bucket, checked))


def open_webhdfs(rest: str, options: Mapping[str, object]) -> FsspecObjectStore:
    place, checked = webhdfs_place(rest), webhdfs_options(options)
    with _needs("a store on HDFS needs fsspec and requests", "hdfs", place.url):
        from dagster_ckpt.storage.stores.over_fsspec.webhdfs import WebHdfsCalls
    return FsspecObjectStore(place.url, place.folder, WebHdfsCalls(place, checked))


@contextmanager
def _needs(what: str, extra: str, url: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise OutsideCodeError(
            f"{what}, on every host that opens it: pip install 'dagster-ckpt[{extra}]'. "
            f"missing={error.name}, store={url}"
        ) from None
