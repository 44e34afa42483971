"""One call of an S3 server at a time: no retry, a deadline, and an answer that nobody has to guess.

s3fs, botocore and aiohttp would each try again by itself. A create that was tried twice finds its own object there and
reports that it lost: so none of them does, and whoever asked decides (`retry`).
"""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa
import s3fs
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError, NoCredentialsError
from s3fs.core import S3_RETRYABLE_ERRORS

from dagster_ckpt.storage.stores.s3_options import S3Options

T = TypeVar("T")

_CONFIG: Mapping[str, object] = {
    "connect_timeout": 5,
    "read_timeout": 15,  # for each piece of an answer; `_deadline_s` is for all of it
    "max_pool_connections": 32,
}
_ONCE = {"total_max_attempts": 1, "mode": "standard"}
_PATIENCE_S = 30
_BYTES_PER_S_MIN = 1024**2
"""What a connection must bring at least: a stream that is slower cannot be worked with."""

_ERRORS = (OSError, BotoCoreError, ClientError, *S3_RETRYABLE_ERRORS)
_CREDENTIALS_MISSING = (NoCredentialsError, CredentialRetrievalError)
_CREDENTIALS_REFUSED = {400, 401, 403}
"""HTTP's words for credentials that expired or are wrong (and for other things, which are rare)."""


class Refusal(Exception):  # noqa: N818  (an answer to whoever asked; what error it is for a user is his to say)
    """The server did not do what was asked. `status` is HTTP's; 0: nobody knows whether it did, for no answer came.

    `code` is S3's word for the reason, `text` is for people; neither has a secret.
    """

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(status, code, text)
        self.status = status
        self.code = code
        self.text = text


class _OnceSession(AIOHTTPSession):  # type: ignore[misc]
    """HTTP as aiobotocore speaks it, but for this: a request whose connection was cut is not sent a second time."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        # aiohttp holds a PUT to be idempotent, which one with If-None-Match is not, and has no option to say so. Should
        # it ever rename this, the tests that count a broken server's requests fail.
        session._retry_connection = False  # noqa: SLF001
        return session


class S3Client:
    """Asks about objects of one bucket. The connections are shared by all of this process that have the same options.

    Every method raises `Refusal`.
    """

    def __init__(self, bucket: str, options: S3Options) -> None:
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
        """What the server answers to another method of botocore's client."""
        return self._answer(
            lambda files: dict(files.call_s3(method, timeout=_deadline_s(0), Bucket=self._bucket, **request))
        )

    def _answer(self, ask: Callable[[Any], T]) -> T:
        files = _SHARED.connections(self._options)
        try:
            return ask(files)
        except _ERRORS as error:
            refusal = self._refusal(error)
            if refusal.status in _CREDENTIALS_REFUSED or isinstance(error, _CREDENTIALS_MISSING):
                # They were looked for once, when the connections were made. Who asks again finds those of then.
                _SHARED.forget(files)
            # Not chained: what botocore says may hold an address with a password.
            raise refusal from None

    def _refusal(self, error: BaseException) -> Refusal:
        # s3fs makes an OSError of what the server says, and fsspec perhaps another; its words are the cause of them.
        said: BaseException | None = error
        while said is not None and not isinstance(said, ClientError):
            said = said.__cause__
        if said is not None:
            status = said.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = str(said.response.get("Error", {}).get("Code", status))
            text = str(said.response.get("Error", {}).get("Message", ""))
        else:
            status, code, text = 0, type(error).__name__, str(error)
        return Refusal(status, self._options.without_secrets(code), self._options.without_secrets(text))


def _deadline_s(size: int) -> float:
    return _PATIENCE_S + size / _BYTES_PER_S_MIN


class _Shared:
    """The connections of this process, a set for each kind of options."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: list[tuple[S3Options, Any]] = []
        self._inherited: list[tuple[S3Options, Any]] = []

    def connections(self, options: S3Options) -> Any:
        with self._lock:
            for known, files in self._opened:
                if known == options:
                    return files
            files = _connected(options)
            self._opened.append((options, files))
            return files

    def forget(self, files: Any) -> None:
        """Make others for whoever asks next; who works with these goes on."""
        with self._lock:
            self._opened = [(options, each) for options, each in self._opened if each is not files]

    def forget_parents(self) -> None:
        """Begin anew in a forked child: the thread that works the connections was not forked with them.

        They are kept all the same, unused: closing them would tell the server so, on the parent's own sockets.
        """
        self._lock = threading.Lock()
        self._inherited, self._opened = [*self._inherited, *self._opened], []


_SHARED = _Shared()
os.register_at_fork(after_in_child=_SHARED.forget_parents)


def _connected(options: S3Options) -> Any:
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
