"""Objects in a bucket of S3, or of a server that speaks its protocol: created by one conditional request.

`put_if_absent` is a PutObject with `If-None-Match: *`: the server lets exactly one creator win. An object of any size
is one request, never a multipart upload: an interrupted one leaves nothing, and the modification time is that of the
request, not of a start long before. Needs `pip install dagster-ckpt[s3]`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.protocol.object_names import is_object_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError
from dagster_ckpt.storage.stores.options import StoreOptions
from dagster_ckpt.storage.stores.s3_client import Refusal, S3Client
from dagster_ckpt.storage.stores.s3_options import S3Place

PUT_BYTES_MAX = 5 * 1024**3
"""What S3 takes in one request."""

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


class S3ObjectStore:
    """The objects below a folder of a bucket. Each call asks the server, once; nothing is cached.

    `modified_ms` knows whole seconds only, always rounded down: an age, which is the difference of two, may look up to
    999 ms greater or smaller than it is. To wait for an age, wait one second longer.
    """

    def __init__(self, place: S3Place, options: StoreOptions) -> None:
        self._place = place
        self._client = S3Client(place.bucket, options)

    def __repr__(self) -> str:
        return f"S3ObjectStore({self.url!r})"

    @property
    def url(self) -> str:
        return self._place.url

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        try:
            self._put(name, data, {"IfNoneMatch": "*"})
        except Refusal as refusal:
            if refusal.status == 412:  # "Precondition Failed": the object is there
                return False
            if refusal.status == 501:
                raise InvalidPipelineError(
                    f"this S3 server does not support conditional creates (If-None-Match), and an imitation would "
                    f"lose data: keep the checkpoints elsewhere. reason={refusal.code}, store={self.url}"
                ) from None
            raise self._error(name, refusal) from None
        return True

    def put(self, name: str, data: bytes | memoryview) -> None:
        with self._answering(name):
            self._put(name, data, {})

    def get(self, name: str) -> bytes:
        key = self._key(name)
        with self._answering(name):
            return self._client.get(key)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        assert offset >= 0, offset
        assert length >= 0, length
        if length == 0:
            self.size(name)  # HTTP has no range of zero bytes
            return b""
        key = self._key(name)
        try:
            return self._client.get(key, offset, offset + length)
        except Refusal as refusal:
            if refusal.status == 416:  # "Range Not Satisfiable": it begins where the object has ended
                return b""
            raise self._error(name, refusal) from None

    def exists(self, name: str) -> bool:
        try:
            self._head(name)
        except ObjectMissingError:
            return False
        return True

    def size(self, name: str) -> int:
        return int(self._head(name)["ContentLength"])

    def modified_ms(self, name: str) -> int:
        return int(self._head(name)["LastModified"].timestamp()) * 1000

    def delete(self, name: str) -> None:
        key = self._key(name)
        try:
            self._client.ask("delete_object", {"Key": key})
        except Refusal as refusal:
            if not _is_missing(refusal):
                raise self._error(name, refusal) from None

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        for page in self._pages(prefix, {"StartAfter": self._key(after)} if after else {}):
            for entry in page.get("Contents", ()):
                # Skip names that other tools created, such as a console's placeholder of a folder.
                if is_object_name(name := self._name(entry["Key"])):
                    yield name

    def folders(self, prefix: str) -> Iterator[str]:
        for page in self._pages(prefix, {"Delimiter": "/"}):
            for entry in page.get("CommonPrefixes", ()):
                if is_object_name(name := self._name(entry["Prefix"]).removesuffix("/")):
                    yield name

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        if prefix:
            _check(prefix)
        return 0  # a put is one request: the server keeps nothing of an interrupted one

    def settle(self, folder: str) -> None:
        _check(folder)

    def local_path(self, name: str) -> Path | None:
        _check(name)
        return None

    def _put(self, name: str, data: bytes | memoryview, condition: Mapping[str, str]) -> None:
        key = self._key(name)
        size = memoryview(data).nbytes
        if size > PUT_BYTES_MAX:
            raise InvalidPipelineError(
                "S3 takes at most 5 GiB in one request: set a smaller memory_limit, so that files are smaller. "
                f"object={name}, bytes={size}, store={self.url}"
            )
        self._client.put(key, data, condition)

    def _head(self, name: str) -> dict[str, Any]:
        key = self._key(name)
        with self._answering(name):
            return self._client.ask("head_object", {"Key": key})

    def _pages(self, prefix: str, request: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        if prefix:
            _check(prefix)
        below = "/".join(part for part in (self._place.folder, prefix) if part)
        request = {"Prefix": f"{below}/" if below else "", **request}
        while True:
            with self._answering(prefix):
                page = self._client.ask("list_objects_v2", request)
            yield page
            if not page.get("IsTruncated"):
                return
            request = {**request, "ContinuationToken": page["NextContinuationToken"]}

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        try:
            yield
        except Refusal as refusal:
            raise self._error(name, refusal) from None

    def _error(self, name: str, refusal: Refusal) -> Exception:
        """The error that the caller gets for a refusal."""
        if refusal.code == "NoSuchBucket":
            return InvalidPipelineError(f"there is no such bucket: create it, or correct its name. store={self.url}")
        if _is_missing(refusal):
            return ObjectMissingError(name)
        advice = _ADVICE.get(refusal.code, _OTHER if refusal.status else _NO_ANSWER)
        return StoreUnavailableError(
            f"S3 did not do it: {advice}. reason={refusal.code}, message={refusal.text!r}, object={name}, "
            f"store={self.url}"
        )

    def _key(self, name: str) -> str:
        _check(name)
        return f"{self._place.folder}/{name}" if self._place.folder else name

    def _name(self, key: str) -> str:
        return key[len(self._place.folder) + 1 :] if self._place.folder else key


def _is_missing(refusal: Refusal) -> bool:
    return refusal.status == 404 and refusal.code != "NoSuchBucket"


def _check(name: str) -> None:
    if not is_object_name(name):
        raise ValueError(f"not a name inside the store. name={name!r}")
