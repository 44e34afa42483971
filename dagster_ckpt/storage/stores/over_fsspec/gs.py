"""Google Cloud Storage through gcsfs: an object is created by a condition, `ifGenerationMatch=0`.

From gcsfs it takes the options, the credentials, the event loop and one call of the JSON API at a time; none of its
file handles, listings or caches. An object of any size is one request: gcsfs's own `pipe_file` changes to a resumable
upload of several at 50 MB, and a `find` of its is served from a listing that it keeps.
"""

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import aiohttp
from gcsfs import retry
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

_TIMEOUT = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=SILENCE_S)
_NO_BUCKET = "there is no such bucket: create it, or correct its name"
_CREDENTIALS = "check the credentials and their permissions, then try again"
_ADVICE = {
    401: _CREDENTIALS,
    403: "give these credentials the permissions that docs/how-to/stores/gcs.md lists, then try again",
    429: "it has too much to do, or this object is written more than once a second; try again later",
}
_NO_OBJECT = "No such object"
_NO_CONDITION = "At least one of the pre-conditions you specified did not hold"
"""What the service says in plain text where a client did not ask for JSON."""
_NOT_GOOGLE = "not a reply of Google Cloud Storage"


class _ErrorReply(Exception):  # noqa: N818  (a reply, which `_refusal` judges)
    """A reply with a status that is no success; gcsfs's own exceptions forget its body."""

    def __init__(self, status: int, body: bytes) -> None:
        text = body.decode(errors="replace")
        error = _members(body).get("error")
        self.status = status
        self.code = error.get("code") if isinstance(error, dict) else None
        self.text = str(error.get("message", "")) if isinstance(error, dict) else text.partition("\n")[0]
        self.reasons = _reasons(error) if isinstance(error, dict) else set()
        super().__init__(self.text)

    @property
    def outcome(self) -> Outcome:
        """By what the service says, not the status alone: a proxy sends a 404 too, for instance while it reloads."""
        if self.status == 404 and (self.code == 404 or self.text.startswith(_NO_OBJECT)):
            return Outcome.MISSING
        if self.status == 412 and ("conditionNotMet" in self.reasons or _NO_CONDITION in self.text):
            return Outcome.EXISTS
        return Outcome.PAST_END if self.status == 416 else Outcome.UNKNOWN


# Credentials that lack what their renewal needs; earlier releases of gcsfs raise Google's error for those too.
_NO_RENEWAL = getattr(retry, "NonRetryableError", GoogleAuthError)
_CREDENTIAL_ERRORS = (GoogleAuthError, _NO_RENEWAL)
_ERRORS = (_ErrorReply, HttpError, OSError, ValueError, RuntimeError, aiohttp.ClientError, *_CREDENTIAL_ERRORS)


class _OnceGcsFileSystem(GCSFileSystem):  # type: ignore[misc]
    """gcsfs, except that a request is sent once, and that the body of an error is kept.

    It would send a create again after a lost reply, which then finds the object that it created and reports that it
    lost. If a release renames one of these, the tests that count a broken server's requests fail.
    """

    async def _request(
        self, method: str, path: str, *parts: str, headers: Any = None, data: Any = None, **parameters: Any
    ) -> tuple[int, Any, Any, bytes]:
        await self._set_session()
        async with self.session.request(
            method=method,
            url=self._format_path(path, parts),
            params=self._get_params(parameters),
            headers=self._get_headers(headers),
            data=data,
            timeout=self.requests_timeout,
            # What follows a redirection may be a GET, which succeeds and changes nothing.
            allow_redirects=method == "GET",
        ) as reply:
            body = await reply.read()
        if reply.status >= 300:
            raise _ErrorReply(reply.status, body)
        return reply.status, reply.headers, reply.request_info, body

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
        try:
            return self._download(path, size, headers)
        except Refusal as refusal:
            if refusal.reason != "404" or refusal.outcome is not Outcome.UNKNOWN:
                raise
        # Perhaps missing, in words that we do not know. Asked for JSON, the service says so, or that it is there now.
        self.head(path)
        return self._download(path, size, headers)

    def head(self, path: str) -> Head:
        found = self._json("b/{}/o/{}", self._bucket, path, fields="size,timeCreated")
        try:
            # When this generation was created: `updated` also changes with the object's metadata.
            return Head(int(found["size"]), _milliseconds(found["timeCreated"]))
        except (KeyError, ValueError, TypeError):
            raise Refusal(Outcome.UNKNOWN, _NOT_GOOGLE) from None

    def delete(self, path: str) -> None:
        self._answer(0, "DELETE", "b/{}/o/{}", self._bucket, path)

    def names(self, folder: str, after: str) -> Iterator[str]:
        for page in self._pages(folder, {"fields": "kind,items/name,nextPageToken", "startOffset": after or None}):
            yield from (item["name"] for item in page.get("items", ()))

    def folders(self, folder: str) -> Iterator[str]:
        for page in self._pages(folder, {"fields": "kind,prefixes,nextPageToken", "delimiter": "/"}):
            yield from (prefix.removesuffix("/") for prefix in page.get("prefixes", ()))

    def discard_leftovers(self, folder: str, before_ms: int) -> int:
        return 0  # an upload is one request: the server keeps nothing of an interrupted one

    def _download(self, path: str, size: int, headers: Mapping[str, str]) -> bytes:
        return self._answer(size, "GET", "b/{}/o/{}", self._bucket, path, headers=headers, alt="media")

    def _upload(self, path: str, data: bytes | memoryview, condition: Mapping[str, str]) -> None:
        size = memoryview(data).nbytes
        with _no_bucket():
            reply = self._answer(
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
        created = _members(reply)
        if (created.get("name"), str(created.get("size"))) != (path, str(size)):
            # A proxy's page, with a status that says nothing of the object.
            raise Refusal(Outcome.UNKNOWN, _NOT_GOOGLE)

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
            if page.get("kind") != "storage#objects":
                raise Refusal(Outcome.UNKNOWN, _NOT_GOOGLE)
            yield page

    def _json(self, path: str, *parts: str, **parameters: str | None) -> dict[str, Any]:
        """The members of a reply; none if it is no JSON object."""
        return _members(self._answer(0, "GET", path, *parts, **parameters))

    def _answer(self, size: int, method: str, path: str, *parts: str, **request: object) -> bytes:
        """The body of the reply."""
        files = self._files()
        try:
            _, body = files.call(method, path, *parts, timeout=deadline_s(size), **request)
            return bytes(body)
        except _ERRORS as error:
            status = _status(error)
            if status == 401 or isinstance(error, _CREDENTIAL_ERRORS):
                # gcsfs looks for credentials once, when it connects. A retry needs new connections to find new ones.
                _SHARED.forget(files)
            # Not chained: the library's text may hold an address with a password, or a token.
            raise self._refusal(status, error) from None

    def _files(self) -> Any:
        try:
            return _SHARED.open(self._options)
        except (*_ERRORS, KeyError) as error:  # a KeyError: the token is a dict without what a key file has
            raise self._refusal(401, error) from None

    def _refusal(self, status: int, error: BaseException) -> Refusal:
        text = self._options.without_parameters(str(error))
        outcome = error.outcome if isinstance(error, _ErrorReply) else Outcome.UNKNOWN
        advice = _ADVICE.get(status, _CREDENTIALS if isinstance(error, _CREDENTIAL_ERRORS) else "")
        return Refusal(outcome, str(status or type(error).__name__), text, advice)


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
    """The HTTP status of an error; 0 if no response came."""
    if isinstance(error, _ErrorReply):
        return error.status
    return int(error.code or 0) if isinstance(error, HttpError) else 0


def _members(body: bytes) -> dict[str, Any]:
    """What a JSON object has; nothing if this is none."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _reasons(error: Mapping[str, Any]) -> set[str]:
    """The reasons that the error of a reply gives."""
    each = error.get("errors")
    return {str(one.get("reason")) for one in each if isinstance(one, dict)} if isinstance(each, list) else set()


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _connect(options: StoreOptions) -> Any:
    return _OnceGcsFileSystem(
        **options.given,
        requests_timeout=_TIMEOUT,
        use_listings_cache=False,
        skip_instance_cache=True,
    )


_SHARED = Connections(_connect)
