"""One call of an S3 server at a time: no retry, a deadline, and an unambiguous outcome.

s3fs, botocore and aiohttp would each retry by default. A create that is sent twice finds the object that it created and
reports that it lost: so their retries are off, and the caller decides (`retry`).
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa
import s3fs
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError, NoCredentialsError
from s3fs.core import S3_RETRYABLE_ERRORS

from dagster_ckpt.storage.stores.connections import Connections
from dagster_ckpt.storage.stores.options import StoreOptions

T = TypeVar("T")

_CONFIG: Mapping[str, object] = {
    "connect_timeout": 5,
    "read_timeout": 15,  # for each part of a response; `_deadline_s` is for all of it
    "max_pool_connections": 32,
}
_ONCE = {"total_max_attempts": 1, "mode": "standard"}
_PATIENCE_S = 30
_BYTES_PER_S_MIN = 1024**2
"""The minimum throughput of a connection: a slower one is too slow for a stream."""

_ERRORS = (OSError, BotoCoreError, ClientError, *S3_RETRYABLE_ERRORS)
_CREDENTIALS_MISSING = (NoCredentialsError, CredentialRetrievalError)
_CREDENTIALS_REFUSED = {400, 401, 403}
"""HTTP statuses of expired or wrong credentials (and of a few rare other errors)."""


class Refusal(Exception):  # noqa: N818  (a response to the caller, who decides which error the user sees)
    """The server refused the request. `status` is the HTTP status; 0 if no response came and the outcome is unknown.

    `code` is S3's error code, `text` is for people. Neither contains a secret.
    """

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(status, code, text)
        self.status = status
        self.code = code
        self.text = text


class _OnceSession(AIOHTTPSession):  # type: ignore[misc]
    """aiobotocore's HTTP session, except that a request is not resent when its connection is cut."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        # aiohttp treats every PUT as idempotent, which one with If-None-Match is not, and has no option for it. If it
        # renames this attribute, the tests that count a broken server's requests fail.
        session._retry_connection = False  # noqa: SLF001
        return session


class S3Client:
    """Requests for objects of one bucket. Clients of this process with equal options share their connections.

    Every method raises `Refusal`.
    """

    def __init__(self, bucket: str, options: StoreOptions) -> None:
        self._bucket = bucket
        self._options = options

    def put(self, key: str, data: bytes | memoryview, headers: Mapping[str, str]) -> None:
        """Write an object with one request, whatever its size."""
        # A reader over the same bytes: botocore takes no memoryview, and a copy would hold a large file twice.
        body = pa.BufferReader(pa.py_buffer(data))
        request = {"Bucket": self._bucket, "Key": key, "Body": body, **headers}
        self._answer(lambda files: files.call_s3("put_object", timeout=_deadline_s(len(data)), **request))

    def get(self, key: str, start: int | None = None, until: int | None = None) -> bytes:
        """The bytes of an object: all, or `[start, until)`."""
        deadline_s = _deadline_s(0 if start is None or until is None else until - start)
        path = f"{self._bucket}/{key}"
        return self._answer(lambda files: bytes(files.cat_file(path, start=start, end=until, timeout=deadline_s)))

    def ask(self, method: str, request: Mapping[str, object]) -> dict[str, Any]:
        """The server's response to another method of botocore's client."""
        return self._answer(
            lambda files: dict(files.call_s3(method, timeout=_deadline_s(0), Bucket=self._bucket, **request))
        )

    def _answer(self, ask: Callable[[Any], T]) -> T:
        files = _SHARED.open(self._options)
        try:
            return ask(files)
        except _ERRORS as error:
            refusal = self._refusal(error)
            if refusal.status in _CREDENTIALS_REFUSED or isinstance(error, _CREDENTIALS_MISSING):
                # s3fs looks up credentials once, when it connects. A retry needs new connections to find new ones.
                _SHARED.forget(files)
            # Not chained: botocore's text may hold an address with a password.
            raise refusal from None

    def _refusal(self, error: BaseException) -> Refusal:
        # s3fs wraps the server's error in an OSError, and fsspec perhaps in another; follow their causes.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ClientError):
            cause = cause.__cause__
        if cause is not None:
            status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = str(cause.response.get("Error", {}).get("Code", status))
            text = str(cause.response.get("Error", {}).get("Message", ""))
        else:
            status, code, text = 0, type(error).__name__, str(error)
        return Refusal(status, self._options.without_secrets(code), self._options.without_secrets(text))


def _deadline_s(size: int) -> float:
    return _PATIENCE_S + size / _BYTES_PER_S_MIN


def _connected(options: StoreOptions) -> Any:
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


_SHARED = Connections(_connected)
