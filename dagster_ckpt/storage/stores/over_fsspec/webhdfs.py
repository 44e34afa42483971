"""HDFS through WebHDFS of its NameNode: an object is created by a rename that refuses to overwrite.

An object is written to a hidden temporary file beside its final name, closed, and then renamed to it with
`renameoptions=NONE`, which fails if anything has that name; `put` renames with `OVERWRITE`, which replaces the file in
the same transaction of the NameNode. A reader sees all of an object or nothing. (The rename without options moves into
a directory of that name, and pyarrow's `move` deletes the destination first.) A crash can leave a hidden temporary file
behind; it is never listed, never named again and harms nothing (`discard_leftovers` removes it).

From fsspec's WebHDFS it takes the options, the authentication and the session; none of its file handles. (They write an
object by appending to it, and return the body of an error as data.)
"""

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import requests
from fsspec.implementations.webhdfs import WebHDFS

from dagster_ckpt.clock import Clock, SystemClock
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
from dagster_ckpt.storage.stores.over_fsspec.places import Server

_ERRORS = (requests.exceptions.RequestException, OSError, ValueError)
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
_OLD_MS = 1_000
"""An object is dated by its temporary file. One whose rename took longer than this is dated again."""
_PART = 1024**2

_REPLACED_MAX = 3
"""So often an object is read again that is replaced while it is read."""

_MISSING = {"FileNotFoundException", "ParentNotDirectoryException"}
_CREDENTIALS = "check the user and its permissions (docs/how-to/stores/hdfs.md lists them), then try again"
_ADVICE = {
    "AccessControlException": _CREDENTIALS,
    "AuthenticationException": _CREDENTIALS,
    "DSQuotaExceededException": "the quota is used up; free some space, then try again",
    "InvalidToken": "renew the token, then try again",
    "NSQuotaExceededException": "the quota is used up; free some names, then try again",
    "SafeModeException": "the NameNode is in safe mode; wait until it has left it",
    "SecurityException": _CREDENTIALS,
    "StandbyException": "this NameNode is in standby; name the active one, or an address that follows it",
}


class _BrokenOffError(Refusal):
    """A reply that began well and had no end."""


class WebHdfsCalls:
    """Requests for the files of a cluster. Those of this process with equal options share their connections."""

    server = "HDFS"

    def __init__(self, place: Server, options: StoreOptions, clock: Clock | None = None) -> None:
        self._place = place
        self._options = options
        self._clock = clock or SystemClock()

    def create(self, path: str, data: bytes | memoryview) -> None:
        self._write(path, data, "NONE")

    def replace(self, path: str, data: bytes | memoryview) -> None:
        self._write(path, data, "OVERWRITE")

    def read(self, path: str, start: int | None = None, until: int | None = None) -> bytes:
        size, ranged = 0, dict[str, str]()
        if start is not None and until is not None:
            size, ranged = until - start, {"offset": str(start), "length": str(until - start)}
        again = _REPLACED_MAX
        while True:
            try:
                return self._ask("GET", path, "OPEN", ranged, size=size)
            except _BrokenOffError:
                # DataNodes delete the blocks of a replaced file, under a reader too: the next try has the new ones.
                if again == 0:
                    raise
                again -= 1

    def head(self, path: str) -> Head:
        status = self._status(path, "GETFILESTATUS", "FileStatus")
        if status["type"] != "FILE":
            raise Refusal(Outcome.MISSING, "a folder")
        return Head(int(status["length"]), int(status["modificationTime"]))

    def delete(self, path: str) -> None:
        try:
            self._ask("DELETE", path, "DELETE", {"recursive": "false"})
        except Refusal as refusal:
            if refusal.reason != "PathIsNotEmptyDirectoryException":
                raise

    def names(self, folder: str, after: str) -> Iterator[str]:
        for path, status in self._files(folder):
            if not _is_temporary(status):
                yield path

    def folders(self, folder: str) -> Iterator[str]:
        for status in self._list(folder):
            if status["type"] == "DIRECTORY":
                yield f"{folder}/{status['pathSuffix']}"

    def discard_leftovers(self, folder: str, before_ms: int) -> int:
        found = [
            path
            for path, status in self._files(folder)
            if _is_temporary(status) and int(status["modificationTime"]) < before_ms
        ]
        for path in found:
            self.delete(path)
        return len(found)

    def _write(self, path: str, data: bytes | memoryview, overwrite: str) -> None:
        temporary = self._temporary_beside(path)
        began = self._clock.monotonic_ms(), self._clock.now_ms()
        try:
            self._create_temporary(temporary, data)
            self._rename(temporary, path, overwrite)
        except BaseException:
            # Where the reply to the rename was lost, this finds nothing, or keeps the rename from happening later.
            with suppress(Refusal):
                self.delete(temporary)
            raise
        took_ms = max(self._clock.monotonic_ms() - began[0], self._clock.now_ms() - began[1])
        if took_ms >= _OLD_MS:
            self._make_younger(path)

    def _temporary_beside(self, path: str) -> str:
        folder, _, _ = path.rpartition("/")
        return f"{folder}/.{self._clock.unique()}.tmp"

    def _create_temporary(self, temporary: str, data: bytes | memoryview) -> None:
        try:
            self._ask("PUT", temporary, "CREATE", {"overwrite": "false"}, data)
        except Refusal as refusal:
            if refusal.outcome in {Outcome.EXISTS, Outcome.MISSING}:
                # Of the temporary file or its folder. It says nothing of the object.
                raise _as_unknown(refusal) from None
            raise

    def _rename(self, temporary: str, path: str, overwrite: str) -> None:
        request = {"destination": f"/{path}", "renameoptions": overwrite}
        try:
            reply = self._ask("PUT", temporary, "RENAME", request)
        except Refusal as refusal:
            if refusal.outcome is Outcome.MISSING:
                # Not of the object: a collector took this process for dead, and discarded its temporary file.
                raise _as_unknown(refusal) from None
            raise
        if reply:
            # NameNodes reply to a rename with options by nothing, and to one without by true or false.
            raise Refusal(
                Outcome.NEVER,
                "",
                advice="this is a gateway (HttpFS) that ignores how a rename is to treat an existing file, and an "
                "imitation would lose data: name the NameNode",
            )

    def _make_younger(self, path: str) -> None:
        """Date an object by a file that is created after its rename: it could not be read before.

        The time that this process measured would not do: of that, an unknown part passed before the temporary file was
        dated, and an object dated into the future is never old enough to be collected.
        """
        try:
            self._ask("PUT", path, "SETTIMES", {"modificationtime": str(self._server_ms(path))})
        except Refusal as refusal:
            # It is there, and was perhaps seen; or a collector took it for old and deleted it. Find out by a retry.
            raise _as_unknown(refusal) from None

    def _server_ms(self, path: str) -> int:
        """The time by the server's clock: that of a temporary file beside `path`."""
        temporary = self._temporary_beside(path)
        try:
            self._create_temporary(temporary, b"")
            return self.head(temporary).modified_ms
        finally:
            with suppress(Refusal):
                self.delete(temporary)

    def _files(self, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """All files below a folder, temporary ones too, with their status: a request for each folder."""
        for status in self._list(folder):
            path = f"{folder}/{status['pathSuffix']}"
            if status["type"] == "DIRECTORY":
                yield from self._files(path)
            elif status["pathSuffix"]:  # else this is a file's own status, and it is no folder
                yield path, status

    def _list(self, folder: str) -> list[Mapping[str, Any]]:
        try:
            found = self._status(folder, "LISTSTATUS", "FileStatuses")
        except Refusal as refusal:
            if refusal.outcome is Outcome.MISSING:
                return []
            raise
        return list(found["FileStatus"])

    def _status(self, path: str, operation: str, what: str) -> Any:
        """What the NameNode says of a path."""
        reply = self._ask("GET", path, operation, {})
        try:
            return json.loads(reply)[what]
        except (ValueError, KeyError, TypeError):
            raise Refusal(Outcome.UNKNOWN, "not a reply of WebHDFS") from None

    def _ask(
        self,
        method: str,
        path: str,
        operation: str,
        parameters: Mapping[str, str],
        data: bytes | memoryview | None = None,
        size: int = 0,
    ) -> bytes:
        """The body of the reply of the NameNode, or of the DataNode that it names."""
        end_ms = self._clock.monotonic_ms() + round(
            1000 * deadline_s(size if data is None else memoryview(data).nbytes)
        )
        files = self._connections()
        url = f"{files.url}/{quote(path)}"
        request = {**parameters, **files.pars, "op": operation}
        try:
            with files.session.request(method, url, params=request, allow_redirects=False, stream=True) as reply:
                if reply.status_code not in {301, 302, 303, 307, 308}:
                    return self._body(reply, end_ms)
                if (location := reply.headers.get("Location")) is None:
                    raise OSError("a redirection without an address")
                url = files._apply_proxy(location)  # noqa: SLF001  (the option data_proxy)
            body = None if data is None else _Body(data, self._clock, end_ms)
            with files.session.request(method, url, data=body, allow_redirects=False, stream=True) as reply:
                return self._body(reply, end_ms)
        except _ERRORS as error:
            # Not chained: an address may hold a token.
            raise self._unknown(error) from None

    def _body(self, reply: requests.Response, end_ms: int) -> bytes:
        body = bytearray()
        try:
            for part in reply.iter_content(_PART):
                body += part
                _check_time(self._clock, end_ms)
        except requests.exceptions.ChunkedEncodingError as error:
            raise self._unknown(error, _BrokenOffError) from None
        if reply.status_code >= 300:  # a second redirection is a gateway's, and an empty body is success to a rename
            raise self._refusal(reply.status_code, bytes(body))
        length = reply.headers.get("Content-Length")
        if length is not None and int(length) != len(body):
            raise self._unknown(OSError("the reply broke off"), _BrokenOffError)
        return bytes(body)

    def _refusal(self, status: int, body: bytes) -> Refusal:
        try:
            error = json.loads(body)["RemoteException"]
            reason, text = str(error["exception"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            reason, text = str(status), ""
        text = self._options.without_secrets(text.partition("\n")[0])
        if reason == "FileAlreadyExistsException":
            outcome = Outcome.EXISTS
        elif reason in _MISSING or (reason == "AccessControlException" and "is not a directory" in text):
            outcome = Outcome.MISSING
        elif "out of the range" in text:
            outcome = Outcome.PAST_END
        else:
            outcome = Outcome.UNKNOWN
        return Refusal(outcome, reason, text, _ADVICE.get(reason, ""))

    def _unknown(self, error: Exception, kind: type[Refusal] = Refusal) -> Refusal:
        text = self._options.without_parameters(str(error))
        return kind(Outcome.UNKNOWN, type(error).__name__, text)

    def _connections(self) -> Any:
        try:
            return _SHARED.open((self._place.host, self._place.port, self._options))
        except (ValueError, ImportError) as error:
            text = self._options.without_secrets(str(error))
            raise Refusal(Outcome.NEVER, type(error).__name__, advice=f"these options do not fit: {text}") from None


class _Body(io.BytesIO):
    """The bytes of a request, which ends when its time is over even if the server reads on slowly."""

    def __init__(self, data: bytes | memoryview, clock: Clock, end_ms: int) -> None:
        super().__init__(data)
        self._clock = clock
        self._end_ms = end_ms

    def read(self, size: int | None = -1, /) -> bytes:
        _check_time(self._clock, self._end_ms)
        return super().read(size)


class _Timed(requests.adapters.HTTPAdapter):
    """Requests that time out; requests by itself waits for ever."""

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        return super().send(request, *args, **{**options, "timeout": (CONNECT_S, SILENCE_S)})


def _check_time(clock: Clock, end_ms: int) -> None:
    if clock.monotonic_ms() > end_ms:
        raise TimeoutError("the request took too long")


def _as_unknown(refusal: Refusal) -> Refusal:
    return Refusal(Outcome.UNKNOWN, refusal.reason, refusal.text, refusal.advice)


def _is_temporary(status: Mapping[str, Any]) -> bool:
    return _TEMPORARY.fullmatch(status["pathSuffix"]) is not None


def _connect(key: tuple[str, int, StoreOptions]) -> Any:
    host, port, options = key
    files = WebHDFS(host, port, **options.given, use_listings_cache=False, skip_instance_cache=True)
    for scheme in ("http://", "https://"):
        files.session.mount(scheme, _Timed(pool_maxsize=CONNECTIONS_MAX))
    return files


_SHARED = Connections(_connect)
