"""The URL and options of an S3 store, checked before any request is sent.

Nothing here, and no message, ever shows an option's value: most of them are secrets.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.object_names import is_object_name

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

_NO_SECRETS = {"endpoint_url", "profile", "region_name"}
_SECRET_CHARACTERS_MIN = 4
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_USER = re.compile(r"(?<=//)[^/\s]*@")


@dataclass(frozen=True)
class S3Place:
    """A bucket and a folder in it (empty: all of it)."""

    bucket: str
    folder: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.folder}".rstrip("/")


@dataclass(frozen=True)
class S3Options:
    """Checked options of s3fs. Two that are equal may share connections."""

    given: Mapping[str, object] = field(repr=False)

    def without_secrets(self, text: str) -> str:
        """A text for people, without anything that could be a secret of these options."""
        for secret in sorted(set(_secrets(self.given)), key=len, reverse=True):
            text = text.replace(secret, "***")
        return _USER.sub("***@", text)


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


def s3_options(given: Mapping[str, object]) -> S3Options:
    """The options, if s3fs accepts them and they can be sent to other processes. Raises `InvalidPipelineError`."""
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise InvalidPipelineError(
            f"an S3 store has no such options: remove them. options={unknown}, known={list(OPTIONS)}"
        )
    for name, value in given.items():
        if not _is_plain(value):
            raise InvalidPipelineError(
                "storage options are sent to other processes: use only texts, numbers, lists and dicts. "
                f"option={name}, type={type(value).__name__}"
            )
    for name in ("client_kwargs", "config_kwargs", "s3_additional_kwargs"):
        if not isinstance(given.get(name, {}), Mapping):
            raise InvalidPipelineError(f"this option is a dict. option={name}, type={type(given[name]).__name__}")
    config = given.get("config_kwargs", {})
    if isinstance(config, Mapping) and "retries" in config:
        raise InvalidPipelineError(
            "dagster-ckpt retries S3 requests itself, because it must know which try a reply belongs to: remove the "
            "option. option=config_kwargs['retries']"
        )
    client = given.get("client_kwargs", {})
    for endpoint in (given.get("endpoint_url"), client.get("endpoint_url") if isinstance(client, Mapping) else None):
        _check_endpoint(endpoint)
    return S3Options(given)


def _check_endpoint(endpoint: object) -> None:
    if endpoint is None:
        return
    try:
        parts = urlsplit(endpoint) if isinstance(endpoint, str) else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        # Not shown: it may hold a password.
        raise InvalidPipelineError(
            "an S3 server is named http://host:port or https://host:port, without a user or a password (those are "
            "key and secret). option=endpoint_url"
        )


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_plain(each) for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each) for each in value)
    return value is None or type(value) in {str, bool, int, float}


def _secrets(value: object, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner, each in value.items():
            yield from _secrets(each, inner)
    elif isinstance(value, str):
        # A proxy's address may hold a user and a password, each of which may appear alone.
        user = _USER.search(value)
        parts = [value, *(user[0].removesuffix("@").split(":") if user else ())]
        # A shorter one would remove parts of every message, and protects nothing.
        yield from (part for part in parts if name not in _NO_SECRETS and len(part) >= _SECRET_CHARACTERS_MIN)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _secrets(each, name)
