"""S3, or a server that speaks its protocol, through s3fs: an object is created by a condition, `If-None-Match: *`.

An object of any size is one request, never a multipart upload: an interrupted one leaves nothing, and the modification
time is that of the request, not of a start long before.

s3fs, botocore and aiohttp would each retry by default. A create that is sent twice finds the object that it created and
reports that it lost: so their retries are off, and the caller decides (`retry`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
import s3fs
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError, NoCredentialsError
from s3fs.core import S3_RETRYABLE_ERRORS

from dagster_ckpt.storage.stores.connections import Connections
from dagster_ckpt.storage.stores.options import StoreOptions
from dagster_ckpt.storage.stores.over_fsspec.calls import (
    CONNECT_S,
    CONNECTIONS_MAX,
    SILENCE_S,
    Head,
    Outcome,
    Refusal,
    deadline_s,
)

T = TypeVar("T")

PUT_BYTES_MAX = 5 * 1024**3
"""What S3 takes in one request."""

_CONFIG: Mapping[str, object] = {
    "connect_timeout": CONNECT_S,
    "read_timeout": SILENCE_S,
    "max_pool_connections": CONNECTIONS_MAX,
}
_ONCE = {"total_max_attempts": 1, "mode": "standard"}

_ERRORS = (OSError, BotoCoreError, ClientError, *S3_RETRYABLE_ERRORS)
_CREDENTIALS_MISSING = (NoCredentialsError, CredentialRetrievalError)
_CREDENTIALS_REFUSED = {400, 401, 403}
"""HTTP statuses of expired or wrong credentials (and of a few rare other errors)."""

_MISSING = "NoSuchKey"
"""S3's own code. A status of 404 alone may be a proxy's, and a writer deletes what it takes for missing."""
_NO_BODY = "404"
"""The code of a 404 that does not say more, such as the response to a HEAD."""
_OUTCOMES = {412: Outcome.EXISTS, 416: Outcome.PAST_END}
_NOT_S3 = "not a reply of S3"
_ADVICE = {
    "AccessDenied": "give these credentials the permissions that docs/how-to/stores/s3.md lists, then try again",
    # The response to a HEAD has no body.
    "403": "check the credentials and their permissions (without s3:ListBucket, S3 answers so for a missing object), "
    "then try again",
    "InvalidAccessKeyId": "check the credentials, then try again",
    "SignatureDoesNotMatch": "check the credentials, then try again",
    "ExpiredToken": "renew the credentials, then try again",
    "NoCredentialsError": "give key and secret in storage_options, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "ConditionalRequestConflict": "another create of the same object is under way; try again",
    "SlowDown": "it has too much to do; try again later",
}
_NO_ANSWER = "see whether the server can be reached, then try again"
_OTHER = "see what is wrong with it, then try again"
_NO_BUCKET = "there is no such bucket: create it, or correct its name"
_NO_CONDITION = (
    "this S3 server does not support conditional creates (If-None-Match), and an imitation would lose data: keep the "
    "checkpoints elsewhere"
)
_TOO_LARGE = "S3 takes at most 5 GiB in one request: set a smaller memory_limit, so that files are smaller"


class _OnceSession(AIOHTTPSession):  # type: ignore[misc]
    """aiobotocore's HTTP session, except that a request is not resent when its connection is cut."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        # aiohttp treats every PUT as idempotent, which one with If-None-Match is not, and has no option for it. If it
        # renames this attribute, the tests that count a broken server's requests fail.
        session._retry_connection = False  # noqa: SLF001
        return session


class S3Calls:
    """Requests for the objects of a bucket. Those of this process with equal options share their connections."""

    server = "S3"

    def __init__(self, bucket: str, options: StoreOptions) -> None:
        self._bucket = bucket
        self._options = options

    def create(self, path: str, data: bytes | memoryview) -> None:
        self._put(path, data, {"IfNoneMatch": "*"})

    def replace(self, path: str, data: bytes | memoryview) -> None:
        self._put(path, data, {})

    def read(self, path: str, start: int | None = None, until: int | None = None) -> bytes:
        seconds = deadline_s(0 if start is None or until is None else until - start)
        where = f"{self._bucket}/{path}"
        return self._answer(lambda files: bytes(files.cat_file(where, start=start, end=until, timeout=seconds)))

    def head(self, path: str) -> Head:
        try:
            found = self._ask("head_object", {"Key": path})
        except Refusal as refusal:
            if refusal.reason == _NO_BODY:
                # A HEAD has no body, in which S3 could say what is missing. Raises that, or finds the object.
                self.read(path, 0, 1)
            raise
        if "ContentLength" not in found or "LastModified" not in found:
            raise Refusal(Outcome.UNKNOWN, _NOT_S3)
        return Head(int(found["ContentLength"]), int(found["LastModified"].timestamp()) * 1000)

    def delete(self, path: str) -> None:
        self._ask("delete_object", {"Key": path})

    def names(self, folder: str, after: str) -> Iterator[str]:
        for page in self._pages(folder, {"StartAfter": after} if after else {}):
            yield from (entry["Key"] for entry in page.get("Contents", ()))

    def folders(self, folder: str) -> Iterator[str]:
        for page in self._pages(folder, {"Delimiter": "/"}):
            yield from (entry["Prefix"].removesuffix("/") for entry in page.get("CommonPrefixes", ()))

    def discard_leftovers(self, folder: str, before_ms: int) -> int:
        return 0  # a put is one request: the server keeps nothing of an interrupted one

    def _put(self, path: str, data: bytes | memoryview, condition: Mapping[str, str]) -> None:
        size = memoryview(data).nbytes
        if size > PUT_BYTES_MAX:
            raise Refusal(Outcome.NEVER, f"{size} bytes of {path}", advice=_TOO_LARGE)
        # A reader over the same bytes: botocore takes no memoryview, and a copy would hold a large file twice.
        body = pa.BufferReader(pa.py_buffer(data))
        request = {"Bucket": self._bucket, "Key": path, "Body": body, **condition}
        reply = self._answer(lambda files: files.call_s3("put_object", timeout=deadline_s(size), **request))
        if not reply.get("ETag"):
            # A proxy's page, with a status that says nothing of the object.
            raise Refusal(Outcome.UNKNOWN, _NOT_S3)

    def _pages(self, folder: str, request: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        request = {"Prefix": f"{folder}/" if folder else "", **request}
        while True:
            page = self._ask("list_objects_v2", request)
            if "IsTruncated" not in page:
                # Any XML, such as a proxy's page, would be read as an empty list.
                raise Refusal(Outcome.UNKNOWN, _NOT_S3)
            yield page
            if not page["IsTruncated"]:
                return
            request = {**request, "ContinuationToken": page["NextContinuationToken"]}

    def _ask(self, method: str, request: Mapping[str, object]) -> dict[str, Any]:
        """The server's response to a method of botocore's client."""
        return self._answer(
            lambda files: dict(files.call_s3(method, timeout=deadline_s(0), Bucket=self._bucket, **request))
        )

    def _answer(self, ask: Callable[[Any], T]) -> T:
        files = _SHARED.open(self._options)
        try:
            return ask(files)
        except _ERRORS as error:
            status, code, text = _http_response(error)
            if status in _CREDENTIALS_REFUSED or isinstance(error, _CREDENTIALS_MISSING):
                # s3fs looks up credentials once, when it connects. A retry needs new connections to find new ones.
                _SHARED.forget(files)
            # Not chained: botocore's text may hold an address with a password.
            raise self._refusal(status, code, text) from None

    def _refusal(self, status: int, code: str, text: str) -> Refusal:
        hide = self._options.without_secrets
        if code == "NoSuchBucket":
            return Refusal(Outcome.NEVER, "", advice=_NO_BUCKET)
        if status == 501:
            return Refusal(Outcome.NEVER, hide(code), advice=_NO_CONDITION)
        advice = _ADVICE.get(code, _OTHER if status else _NO_ANSWER)
        outcome = Outcome.MISSING if code == _MISSING else _OUTCOMES.get(status, Outcome.UNKNOWN)
        return Refusal(outcome, hide(code), hide(text), advice)


def _http_response(error: BaseException) -> tuple[int, str, str]:
    """The HTTP status (0 if no response came), S3's error code and its text for people. The last two may hold secrets.

    s3fs wraps the server's error in an OSError, and fsspec perhaps in another: their causes are followed.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ClientError):
        cause = cause.__cause__
    if cause is None:
        return 0, type(error).__name__, str(error)
    reply = cause.response.get("ResponseMetadata", {})
    status = int(reply.get("HTTPStatusCode", 0))
    found = cause.response.get("Error", {})
    code = str(found.get("Code") or status)
    if cause.operation_name == "HeadObject" and code == _NO_BODY and _is_of_s3(reply.get("HTTPHeaders", {})):
        code = _MISSING
    return status, code, str(found.get("Message", ""))


def _is_of_s3(headers: Mapping[str, str]) -> bool:
    return any(name.lower().startswith("x-amz-") for name in headers)


def _connect(options: StoreOptions) -> Any:
    given = dict(options.given)
    config = given.pop("config_kwargs", None)
    files = s3fs.S3FileSystem(
        **given,
        config_kwargs={
            **_CONFIG,
            **(config if isinstance(config, Mapping) else {}),
            "retries": _ONCE,
            "http_session_cls": _OnceSession,
        },
        # One request for one object, not several: its bytes are those of one moment.
        max_concurrency=1,
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    files.retries = 1
    return files


_SHARED = Connections(_connect)
