"""Azure Blob Storage through adlfs: an object is created by a condition, `If-None-Match: *`.

From adlfs it takes the options, the credentials, the event loop and the client of Azure's SDK; none of its file
handles, listings or caches. (`find` and `ls` of adlfs show a missing container as an empty one, and `info` is up to
three requests.) An object of any size is one Put Blob: an interrupted one leaves nothing.
"""

import io
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

from adlfs import AzureBlobFileSystem
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport
from azure.core.utils import parse_connection_string
from azure.storage.blob.aio import BlobPrefix, BlobServiceClient
from fsspec.asyn import sync

from dagster_ckpt.storage.stores.connections import Connections
from dagster_ckpt.storage.stores.options import StoreOptions
from dagster_ckpt.storage.stores.over_fsspec.calls import CONNECT_S, SILENCE_S, Head, Outcome, Refusal, deadline_s

T = TypeVar("T")

_PUT_BYTES_MAX = 5_000 * 1024**2
"""What Azure takes in one request."""

_ERRORS = (AzureError, OSError, ValueError, RuntimeError)
_EXISTS = {"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"}
_MISSING = {"BlobNotFound", "ResourceNotFound"}
"""Azure's own codes. A status of 404 alone may be a proxy's, and a writer deletes what it takes for missing."""
_NO_CONTAINER = {"ContainerNotFound", "ContainerBeingDeleted"}
_FOLDER = {"hdi_isfolder", "Hdi_isfolder"}
"""How an account with a hierarchical namespace marks the blob that stands for a folder."""
_CREDENTIALS = "check the credentials and their permissions (docs/how-to/stores/azure.md lists them), then try again"
_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"


class _OnceTransport(AioHttpTransport):  # type: ignore[misc]
    """Azure's transport over aiohttp, except that a request is not resent when its connection is cut."""

    async def open(self) -> None:
        await super().open()
        # aiohttp treats every PUT as idempotent, which one with If-None-Match is not, and has no option for it. If it
        # renames this attribute, the tests that count a broken server's requests fail.
        self.session._retry_connection = False  # noqa: SLF001

    async def send(self, request: Any, **options: Any) -> Any:
        if isinstance(request.data, bytes):
            # aiohttp sends a large body of bytes in one piece, while all others wait.
            request.data = io.BytesIO(request.data)
        return await super().send(request, **options)


class _OnceAzureFileSystem(AzureBlobFileSystem):  # type: ignore[misc]
    """adlfs, except that a request is sent once: the SDK would send it four times."""

    def do_connect(self) -> None:
        super().do_connect()
        given: Any = self.service_client
        self.service_client: Any = BlobServiceClient(
            given.url,
            given.credential,
            transport=_OnceTransport(),
            retry_total=0,
            connection_timeout=CONNECT_S,
            read_timeout=SILENCE_S,
            # One request for one object, not several: its bytes are those of one moment.
            max_single_put_size=_PUT_BYTES_MAX,
            max_single_get_size=_PUT_BYTES_MAX,
        )


class AzureCalls:
    """Requests for the objects of a container. Those of this process with equal options share their connections."""

    server = "Azure"

    def __init__(self, container: str, options: StoreOptions) -> None:
        self._container = container
        self._options = options

    def create(self, path: str, data: bytes | memoryview) -> None:
        self._upload(path, data, overwrite=False)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        self._upload(path, data, overwrite=True)

    def read(self, path: str, start: int | None = None, until: int | None = None) -> bytes:
        length = None if start is None or until is None else until - start

        async def read(blob: Any) -> bytes:
            stream = await blob.download_blob(offset=start, length=length, max_concurrency=1)
            return bytes(await stream.readall())

        return self._of_blob(path, length or 0, read)

    def head(self, path: str) -> Head:
        found = self._of_blob(path, 0, lambda blob: blob.get_blob_properties())
        if _is_folder(found.metadata):
            raise Refusal(Outcome.MISSING, "a folder")
        return Head(found.size, int(found.last_modified.timestamp()) * 1000)

    def delete(self, path: str) -> None:
        try:
            # Azure keeps a blob that has snapshots, such as those of a backup, unless it is to delete them too.
            self._of_blob(path, 0, lambda blob: blob.delete_blob(delete_snapshots="include"))
        except Refusal as refusal:
            if refusal.reason != "DirectoryIsNotEmpty":
                raise

    def names(self, folder: str, after: str) -> Iterator[str]:
        prefix = f"{folder}/" if folder else None
        for blob in self._list(lambda client: client.list_blobs(name_starts_with=prefix, include=["metadata"])):
            if not _is_folder(blob.metadata):
                yield blob.name

    def folders(self, folder: str) -> Iterator[str]:
        prefix = f"{folder}/" if folder else None
        for found in self._list(lambda client: client.walk_blobs(name_starts_with=prefix, delimiter="/")):
            if isinstance(found, BlobPrefix):
                yield found.name.removesuffix("/")

    def discard_leftovers(self, folder: str, before_ms: int) -> int:
        return 0  # a put is one request: the server keeps nothing of an interrupted one

    def _upload(self, path: str, data: bytes | memoryview, *, overwrite: bool) -> None:
        size = memoryview(data).nbytes
        if size > _PUT_BYTES_MAX:
            raise Refusal(
                Outcome.NEVER,
                "",
                advice="Azure takes at most 5,000 MiB in one request: set a smaller memory_limit, so that files are "
                f"smaller. object={path}, bytes={size}",
            )
        self._of_blob(
            path,
            size,
            lambda blob: blob.upload_blob(io.BytesIO(data), length=size, overwrite=overwrite, max_concurrency=1),
        )

    def _list(self, begin: Callable[[Any], Any]) -> Iterator[Any]:
        """The items of a listing, one request a page."""
        files = self._files()
        pages = begin(files.service_client.get_container_client(self._container)).by_page()
        while (page := self._answer(files, 0, lambda: _next_page(pages))) is not None:
            yield from page

    def _of_blob(self, path: str, size: int, ask: Callable[[Any], Awaitable[T]]) -> T:
        files = self._files()
        blob = files.service_client.get_blob_client(self._container, path)
        return self._answer(files, size, lambda: ask(blob))

    def _answer(self, files: Any, size: int, ask: Callable[[], Awaitable[T]]) -> T:
        async def answer() -> T:
            return await ask()

        try:
            return sync(files.loop, answer, timeout=deadline_s(size))  # type: ignore[no-any-return]
        except _ERRORS as error:
            refusal = self._refusal(error)
            if isinstance(error, ClientAuthenticationError):
                # A retry needs new connections to find new credentials.
                _SHARED.forget(files)
            # Not chained: the SDK's text may hold an address with a signature.
            raise refusal from None

    def _files(self) -> Any:
        try:
            return _SHARED.open(self._options)
        except _ERRORS as error:
            raise self._refusal(error, _CREDENTIALS) from None

    def _refusal(self, error: Exception, advice: str = "") -> Refusal:
        status = error.status_code if isinstance(error, HttpResponseError) else None
        found = getattr(error, "error_code", None)
        code = str(getattr(found, "value", found) or status or type(error).__name__)
        # Only the first line: the others are the request's headers, and what the server signed.
        text = self._options.without_secrets(str(getattr(error, "message", error)).partition("\n")[0])
        if code in _NO_CONTAINER:
            return Refusal(Outcome.NEVER, "", advice="there is no such container: create it, or correct its name")
        if code in _EXISTS:
            return Refusal(Outcome.EXISTS, code, text)
        if code in _MISSING:
            return Refusal(Outcome.MISSING, code, text)
        if status in {401, 403} or isinstance(error, ClientAuthenticationError):
            advice = _CREDENTIALS
        return Refusal(Outcome.PAST_END if status == 416 else Outcome.UNKNOWN, code, text, advice)


def _is_folder(metadata: Any) -> bool:
    return any((metadata or {}).get(mark) == "true" for mark in _FOLDER)


async def _next_page(pages: AsyncIterator[Any]) -> list[Any] | None:
    try:
        page = await anext(pages)
    except StopAsyncIteration:
        return None
    return [each async for each in page]


def _check_account(given: Mapping[str, object]) -> None:
    """Refuse a connection string of the environment that leads to another account than the options.

    adlfs prefers it to the option `account_name`: the stream would begin a second time, in the other account.
    """
    connection = os.environ.get(_CONNECTION)
    if not connection or not given.get("account_name") or given.get("connection_string"):
        return
    if parse_connection_string(connection).get("accountname") != given["account_name"]:
        raise Refusal(
            Outcome.NEVER,
            "",
            advice=f"the environment variable {_CONNECTION} leads to another account than the option account_name, and "
            "adlfs follows the variable: remove it, or give the option connection_string",
        )


def _connect(options: StoreOptions) -> Any:
    _check_account(options.given)
    return _OnceAzureFileSystem(
        **{"anon": False, **options.given},
        use_listings_cache=False,
        skip_instance_cache=True,
    )


_SHARED = Connections(_connect)
