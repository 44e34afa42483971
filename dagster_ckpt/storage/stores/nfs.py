"""NFS mounts: which options of Linux's client a local store can't live with.

A create is decided by the server, whatever the options. But the store's contract also says that a read of one object is
strongly consistent, and that a durable object stays: some options give that up for speed.
"""

import re
from pathlib import Path

from dagster_ckpt.errors import InvalidPipelineError

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")

_REASONS = {
    "soft": "a request that takes long is reported as failed, and may happen later",
    "softerr": "a request that takes long is reported as failed, and may happen later",
    "nocto": "a file that another host has replaced is read as it was",
}
_CACHED_NAMES = "names that another host created or deleted are looked up in a cache that may be a minute old"


def refuse_unsafe_mount(folder: Path) -> None:
    """Raise `InvalidPipelineError` for a folder on an NFS mount with options that break the contract of a store."""
    try:
        mounts = _MOUNTS.read_text()
    except OSError:  # not Linux
        return
    reasons = unsafe_options(mounts, folder.resolve())
    if reasons:
        listed = "; ".join(f"{option}: {reason}" for option, reason in reasons.items())
        raise InvalidPipelineError(
            "the options of this NFS mount are not safe for checkpoints: mount it with hard,lookupcache=none and "
            f"without these ({listed}). folder={folder}"
        )


def unsafe_options(mounts: str, folder: Path) -> dict[str, str]:
    """Each option of the NFS mount with this folder that is not safe, and why; none where it is on no NFS.

    `mounts` is what `/proc/self/mountinfo` has.
    """
    found = _mount_of(mounts, folder)
    if found is None or found[0] not in {"nfs", "nfs4"}:
        return {}
    options = found[1]
    reasons = {option: reason for option, reason in _REASONS.items() if option in options}
    if not options & {"lookupcache=none", "noac", "acdirmax=0"}:
        lookups = next((option for option in options if option.startswith("lookupcache=")), "lookupcache=all")
        reasons[lookups] = _CACHED_NAMES
    return reasons


def _mount_of(mounts: str, folder: Path) -> tuple[str, set[str]] | None:
    """The type and options of the file system with this folder. The last of several mounts in one place shows."""
    best: tuple[int, str, set[str]] | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), before.split()[4]))
        depth = len(point.parts)
        if folder.is_relative_to(point) and (best is None or depth >= best[0]):
            kind, _, options = after.split(maxsplit=2)
            best = depth, kind, set(options.split(","))
    return None if best is None else best[1:]
