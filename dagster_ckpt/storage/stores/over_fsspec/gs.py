"""Google Cloud Storage through gcsfs: an object is created by a condition, `ifGenerationMatch=0`.

Of gcsfs it takes the options, the credentials, the event loop and one call of the JSON API at a time; none of its file
handles, listings or caches. An object of any size is one request: gcsfs's own `pipe_file` changes to a resumable upload
of several at 50 MB, and a `find` of its is served from a listing that it keeps.
"""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

import aiohttp
import requests
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError
from google.auth.exceptions import GoogleAuthError

from dagster_ckpt.storage.stores.connections import Connections
from dagster_ckpt.storage.stores.options import StoreOptions
from dagster_ckpt.storage.stores.over_fsspec.calls import (
    CONNECT_S,
    SILENCE_S,
    Head,
    Outcome,
    Refusal,
    deadline_s,
)

_ERRORS = (HttpError, OSError, ValueError, RuntimeError, aiohttp.ClientError, GoogleAuthError)
_TIMEOUT = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=SILENCE_S)
_NO_BUCKET = "there is no such bucket: create it, or correct its name"
_CREDENTIALS = "check the credentials and their permissions, then try again"
_ADVICE = {
    401: _CREDENTIALS,
    403: "give these credentials the permissions that docs/how-to/stores/gcs.md lists, then try again",
    429: "it has too much to do, or this object is written more than once a second; try again later",
}


_STATUSES = {FileNotFoundError: 404, FileExistsError: 412, ValueError: 400}


class _OnceFileSystem(GCSFileSystem):  # type: ignore[misc]
    """gcsfs, except that a request is sent once.

    It would send a create again after a lost reply, which then finds the object that it created and reports that it
    lost. If a release renames one of these, the tests that count a broken server's requests fail.
    """

    _request = GCSFileSystem._request.__wrapped__  # noqa: SLF001  (without its retries)

    async def _set_session(self) -> Any:
        session = await super()._set_session()
        session._retry_connection = False  # noqa: SLF001  (aiohttp's own second try; it has no option for it)
        return session


class GoogleCalls:
    """Requests for the objects of a bucket. Those of this process with equal options share their connections."""

    server = "Google Cloud Storage"

    def __init__(self, bucket: str, options: StoreOptions) -> None:
        self._bucket = bucket
        self._options = options

    def create(self, path: str, data: bytes | memoryview) -> None:
        self._upload(path, data, {"ifGenerationMatch": "0"})

    def replace(self, path: str, data: bytes | memoryview) -> None:
        self._upload(path, data, {})

    def read(self, path: str, start: int | None = None, until: int | None = None) -> bytes:
        ranged = start is not None and until is not None
        headers = {"Range": f"bytes={start}-{until - 1}"} if ranged else {}  # type: ignore[operator]
        size = until - start if ranged else 0  # type: ignore[operator]
        _, body = self._answer(size, "GET", "b/{}/o/{}", self._bucket, path, headers=headers, alt="media")
        return bytes(body)

    def head(self, path: str) -> Head:
        found = self._json("b/{}/o/{}", self._bucket, path, fields="size,timeCreated")
        # The time of this generation. `updated` also moves when somebody changes a label.
        return Head(int(found["size"]), _milliseconds(found["timeCreated"]))

    def delete(self, path: str) -> None:
        self._answer(0, "DELETE", "b/{}/o/{}", self._bucket, path)

    def names(self, folder: str, after: str) -> Iterator[str]:
        for page in self._pages(folder, {"fields": "items/name,nextPageToken", "startOffset": after or None}):
            yield from (item["name"] for item in page.get("items", ()))

    def folders(self, folder: str) -> Iterator[str]:
        for page in self._pages(folder, {"fields": "prefixes,nextPageToken", "delimiter": "/"}):
            yield from (prefix.removesuffix("/") for prefix in page.get("prefixes", ()))

    def discard_leftovers(self, folder: str, before_ms: int) -> int:
        return 0  # an upload is one request: the server keeps nothing of an interrupted one

    def _upload(self, path: str, data: bytes | memoryview, condition: Mapping[str, str]) -> None:
        size = memoryview(data).nbytes
        with _no_bucket():
            self._answer(
                size,
                "POST",
                f"{self._files().base.removesuffix('storage/v1/')}upload/storage/v1/b/{{}}/o",
                self._bucket,
                data=io.BytesIO(data),
                headers={"Content-Type": "application/octet-stream"},
                uploadType="media",
                name=path,
                **condition,
            )

    def _pages(self, folder: str, request: Mapping[str, str | None]) -> Iterator[dict[str, Any]]:
        page: dict[str, Any] = {"nextPageToken": None}
        while "nextPageToken" in page:
            with _no_bucket():
                page = self._json(
                    "b/{}/o",
                    self._bucket,
                    prefix=f"{folder}/" if folder else None,
                    pageToken=page["nextPageToken"],
                    **request,
                )
            yield page

    def _json(self, path: str, *parts: str, **parameters: str | None) -> dict[str, Any]:
        return cast(dict[str, Any], self._answer(0, "GET", path, *parts, json_out=True, **parameters))

    def _answer(self, size: int, method: str, path: str, *parts: str, **request: object) -> Any:
        files = self._files()
        try:
            return files.call(method, path, *parts, timeout=deadline_s(size), **request)
        except _ERRORS as error:
            status = _status(error)
            if status == 401 or isinstance(error, GoogleAuthError):
                # gcsfs looks for credentials once, when it connects. A retry needs new connections to find new ones.
                _SHARED.forget(files)
            # Not chained: the library's text may hold an address with a password, or a token.
            raise self._refusal(status, error) from None

    def _files(self) -> Any:
        try:
            return _SHARED.open(self._options)
        except _ERRORS as error:
            raise self._refusal(401, error) from None

    def _refusal(self, status: int, error: BaseException) -> Refusal:
        text = self._options.without_secrets(str(getattr(error, "message", error)))
        reason = str(status or type(error).__name__)
        outcomes = {404: Outcome.MISSING, 412: Outcome.EXISTS, 416: Outcome.PAST_END}
        advice = _ADVICE.get(status, _CREDENTIALS if isinstance(error, GoogleAuthError) else "")
        return Refusal(outcomes.get(status, Outcome.UNKNOWN), reason, text, advice)


@contextmanager
def _no_bucket() -> Iterator[None]:
    """A bucket is missing where nothing else can be."""
    try:
        yield
    except Refusal as refusal:
        if refusal.outcome is not Outcome.MISSING:
            raise
        raise Refusal(Outcome.NEVER, "", advice=_NO_BUCKET) from None


def _status(error: BaseException) -> int:
    """The HTTP status that gcsfs made an exception of; 0 if no response came."""
    if isinstance(error, HttpError):
        return int(error.code or 0)
    if isinstance(error, requests.exceptions.ProxyError):
        return 502
    if isinstance(error, OSError) and str(error).startswith("Forbidden"):
        return 403
    return next((status for kind, status in _STATUSES.items() if type(error) is kind), 0)


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _connected(options: StoreOptions) -> Any:
    return _OnceFileSystem(
        **options.given,
        requests_timeout=_TIMEOUT,
        use_listings_cache=False,
        skip_instance_cache=True,
    )


_SHARED = Connections(_connected)
