"""What a URL names, and the options of its filesystem, checked before any request is sent and any library loaded."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.object_names import is_object_name
from dagster_ckpt.storage.stores.options import StoreOptions, check_dicts, check_endpoint, check_known

S3_OPTIONS = (
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
GS_OPTIONS = ("access", "endpoint_url", "project", "requester_pays", "token")
"""The options of gcsfs that select the server and the credentials."""
AZURE_OPTIONS = (
    "account_host",
    "account_key",
    "account_name",
    "anon",
    "client_id",
    "client_secret",
    "connection_string",
    "sas_token",
    "tenant_id",
)
"""The options of adlfs that select the account and the credentials."""
WEBHDFS_OPTIONS = (
    "data_proxy",
    "kerb_kwargs",
    "kerberos",
    "password",
    "proxy_to",
    "session_cert",
    "session_verify",
    "token",
    "use_https",
    "user",
)
"""The options of fsspec's WebHDFS that select the datanodes' addresses and the credentials."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_SERVER = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?):([0-9]{1,5})")


@dataclass(frozen=True)
class Bucket:
    """A bucket and a folder in it (empty: all of it)."""

    scheme: str
    bucket: str
    folder: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.folder}".rstrip("/")


@dataclass(frozen=True)
class Server:
    """A server and a folder on it, which is never the root."""

    scheme: str
    host: str
    port: int
    folder: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/{self.folder}"


def s3_place(rest: str) -> Bucket:
    """The place that `s3:` and `rest` name. Raises `InvalidPipelineError`, as all of these."""
    return _parse_bucket(rest, "s3", "an S3 store", "bucket")


def gs_place(rest: str) -> Bucket:
    return _parse_bucket(rest, "gs", "a store on Google Cloud Storage", "bucket")


def azure_place(rest: str) -> Bucket:
    return _parse_bucket(rest, "abfs", "a store on Azure", "container")


def webhdfs_place(rest: str) -> Server:
    return _parse_server(rest, "webhdfs", "a store on HDFS")


def s3_options(given: Mapping[str, object]) -> StoreOptions:
    """The options, if s3fs accepts them and they can be sent to other processes. Raises `InvalidPipelineError`."""
    check_known("an S3 store", given, S3_OPTIONS)
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


def gs_options(given: Mapping[str, object]) -> StoreOptions:
    """The options, if gcsfs accepts them and they can be sent to other processes. Raises `InvalidPipelineError`."""
    check_known("a store on Google Cloud Storage", given, GS_OPTIONS)
    check_endpoint("a server of Google Cloud Storage", given.get("endpoint_url"), "credentials are the option token")
    token = given.get("token")
    if isinstance(token, str) and token.lstrip().startswith("{"):
        given = {**given, "token": _key(token)}
    return StoreOptions(given)


def azure_options(given: Mapping[str, object]) -> StoreOptions:
    """The options, if adlfs accepts them and they can be sent to other processes. Raises `InvalidPipelineError`."""
    check_known("a store on Azure", given, AZURE_OPTIONS)
    return StoreOptions(given)


def webhdfs_options(given: Mapping[str, object]) -> StoreOptions:
    """The options, if fsspec accepts them and they can be sent to other processes. Raises `InvalidPipelineError`."""
    check_known("a store on HDFS", given, WEBHDFS_OPTIONS)
    check_dicts(given, ("data_proxy", "kerb_kwargs"))
    return StoreOptions(given)


def _key(text: str) -> dict[str, object]:
    """The content of a key file: gcsfs would take its text for an access token, and send the private key to a check."""
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    if not isinstance(key, dict):
        # Not shown, and not chained: it holds a private key.
        raise InvalidPipelineError(
            "the token begins as a key file does, but is no JSON object: give the whole content of the file, or its "
            "path. option=token"
        ) from None
    return key


def _parse_bucket(rest: str, scheme: str, store: str, bucket: str) -> Bucket:
    """The place that a URL names, `rest` being what follows the scheme's colon. Raises `InvalidPipelineError`.

    `store` and `bucket` are what they are called, such as `a store on Azure` and `container`.
    """
    _refuse_secrets(rest, f"{scheme}://{bucket}/folder", store, scheme)
    name, _, folder = rest.removeprefix("//").partition("/")
    folder = folder.strip("/")
    if not rest.startswith("//") or not _BUCKET.fullmatch(name) or (folder and not is_object_name(folder)):
        raise InvalidPipelineError(_form(f"{scheme}://{bucket}/folder", store, f"{scheme}:{rest}"))
    return Bucket(scheme, name, folder)


def _parse_server(rest: str, scheme: str, store: str) -> Server:
    """The place that a URL names, `rest` being what follows the scheme's colon. Raises `InvalidPipelineError`."""
    form = f"{scheme}://host:port/folder"
    authority, _, folder = rest.removeprefix("//").partition("/")
    found = _SERVER.fullmatch(authority)
    _refuse_secrets((found[1] if found else authority) + folder, form, store, scheme)
    folder = folder.strip("/")
    if not rest.startswith("//") or not found or not is_object_name(folder):
        raise InvalidPipelineError(_form(form, store, f"{scheme}:{rest}"))
    return Server(scheme, found[1], int(found[2]), folder)


def _refuse_secrets(text: str, form: str, store: str, scheme: str) -> None:
    if not set("@?#:").isdisjoint(text):
        # Not shown: it may be a password.
        raise InvalidPipelineError(
            f"{store} is named {form} and nothing else; users, keys and passwords go into storage_options. "
            f"scheme={scheme}"
        )


def _form(form: str, store: str, url: str) -> str:
    return f"{store} is named {form}, the folder's parts of letters, digits, '-', '_', '.' and '='. url={url!r}"
