"""Storage options, checked before any request is sent, and the secrets among them.

Nothing here, and no message, ever shows an option's value: most of them are secrets.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.redaction import secret_parts, without_parts

_NO_SECRETS = {
    "access",
    "account_host",
    "account_name",
    "endpoint_url",
    "profile",
    "project",
    "proxy_to",
    "region_name",
    "user",
}
_USER = re.compile(r"(?<=//)[^/\s]*@")
_PARAMETERS = re.compile(r"\?\S*")


@dataclass(frozen=True)
class StoreOptions:
    """Checked options of a filesystem. Two that are equal may share connections."""

    given: Mapping[str, object] = field(repr=False)

    def without_secrets(self, text: str) -> str:
        """A text for people, without anything that could be a secret of these options."""
        return _USER.sub("***@", without_parts(text, _secrets(self.given), "***"))

    def without_parameters(self, text: str) -> str:
        """The same, and without the parameters of addresses: a token may be there in another form than in an option."""
        return _PARAMETERS.sub("?...", self.without_secrets(text))


def check_known(store: str, given: Mapping[str, object], known: Sequence[str]) -> None:
    """Raise `InvalidPipelineError` for options that are not among `known`, or cannot be sent to other processes.

    `store` is what it is called, such as `an S3 store`.
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidPipelineError(f"{store} has no such options: remove them. options={unknown}, known={list(known)}")
    for name, value in given.items():
        if not _is_plain(value):
            raise InvalidPipelineError(
                "storage options are sent to other processes: use only texts, numbers, lists and dicts. "
                f"option={name}, type={type(value).__name__}"
            )


def check_dicts(given: Mapping[str, object], names: Collection[str]) -> None:
    """Raise `InvalidPipelineError` unless the options of these names are dicts."""
    for name in names:
        if not isinstance(given.get(name, {}), Mapping):
            raise InvalidPipelineError(f"this option is a dict. option={name}, type={type(given[name]).__name__}")


def check_endpoint(server: str, endpoint: object, instead: str) -> None:
    """Raise `InvalidPipelineError` for an `endpoint_url` that is no address of a server, or holds a password.

    `server` is what it is called, and `instead` says where a user and a password go.
    """
    if endpoint is None:
        return
    try:
        parts = urlsplit(endpoint) if isinstance(endpoint, str) else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        # Not shown: it may hold a password.
        raise InvalidPipelineError(
            f"{server} is named http://host:port or https://host:port, without a user or a password ({instead}). "
            "option=endpoint_url"
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
        if name not in _NO_SECRETS:
            yield from secret_parts(value)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _secrets(each, name)
