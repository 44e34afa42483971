"""The URL and options of an S3 store, checked before any request is sent."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.object_names import is_object_name
from dagster_ckpt.storage.stores.options import StoreOptions, check_dicts, check_endpoint, check_known

OPTIONS = (
    "anon",
    "client_kwargs",
    "config_kwargs",
    "endpoint_url",
    "key",
    "profile",
    "requester_pays",
    "s3_additional_kwargs",
    "secret",
    "token",
    "use_ssl",
)
"""The options of s3fs that select the server and the credentials. The others control how files are buffered, cached and
listed, which this store decides."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


@dataclass(frozen=True)
class S3Place:
    """A bucket and a folder in it (empty: all of it)."""

    bucket: str
    folder: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.folder}".rstrip("/")


def s3_place(rest: str) -> S3Place:
    """The place that a URL names, `rest` being what follows `s3:`. Raises `InvalidPipelineError`."""
    if not set("@?#:").isdisjoint(rest):
        # Not shown: it may be a password.
        raise InvalidPipelineError(
            "an S3 store is named by bucket and folder alone, s3://bucket/folder; keys and passwords go into "
            "storage_options, the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or a profile. scheme=s3"
        )
    bucket, _, folder = rest.removeprefix("//").partition("/")
    folder = folder.strip("/")
    if not rest.startswith("//") or not _BUCKET.fullmatch(bucket) or (folder and not is_object_name(folder)):
        raise InvalidPipelineError(
            "an S3 store is named s3://bucket/folder, the folder's parts of letters, digits, '-', '_', '.' and '='. "
            f"url={'s3:' + rest!r}"
        )
    return S3Place(bucket, folder)


def s3_options(given: Mapping[str, object]) -> StoreOptions:
    """The options, if s3fs accepts them and they can be sent to other processes. Raises `InvalidPipelineError`."""
    check_known("an S3 store", given, OPTIONS)
    check_dicts(given, ("client_kwargs", "config_kwargs", "s3_additional_kwargs"))
    config = given.get("config_kwargs", {})
    if isinstance(config, Mapping) and "retries" in config:
        raise InvalidPipelineError(
            "dagster-ckpt retries S3 requests itself, because it must know which try a reply belongs to: remove the "
            "option. option=config_kwargs['retries']"
        )
    client = given.get("client_kwargs", {})
    for endpoint in (given.get("endpoint_url"), client.get("endpoint_url") if isinstance(client, Mapping) else None):
        check_endpoint("an S3 server", endpoint, "those are key and secret")
    return StoreOptions(given)
