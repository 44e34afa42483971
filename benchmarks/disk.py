"""Room on the disk, looked at before hours go into a cell that could not end."""

import shutil
from pathlib import Path

_BYTES_A_KEY = 300  # of the input, the state, and all that its merges leave behind while they are measured


def check_disk(folder: Path, keys: int) -> None:
    """Raise RuntimeError where there is too little for a state of so many keys."""
    free, needed = shutil.disk_usage(folder).free, keys * _BYTES_A_KEY
    if free < needed:
        raise RuntimeError(f"the disk has too little room. free={free / 1e9:.0f} GB, needed={needed / 1e9:.0f} GB")
