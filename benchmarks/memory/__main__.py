"""How much memory one task takes as the state grows: its own, apart from the files of the state that it has mapped.

    python -m benchmarks.memory [--keys 1M,10M,100M]

Runs the cells of `make bench ONLY=engine` and samples each process every 20 ms. Resident memory includes the pages of
mapped files, which Linux reclaims under memory pressure, so the two are listed separately.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SAMPLE_S = 0.02


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", default="1M,10M,100M", help="cells of `make bench ONLY=engine`")
    for cell in parser.parse_args().keys.split(","):
        with tempfile.TemporaryDirectory() as folder:
            own, mapped = _most(f"engine/{cell}", Path(folder))
        print(f"{cell} keys: {own / 1e6:,.0f} MB of its own, {mapped / 1e6:,.0f} MB of mapped files", flush=True)


def _most(cell: str, folder: Path) -> tuple[int, int]:
    """The process's peak anonymous memory and peak mapped files, in bytes."""
    command = [sys.executable, "-m", "benchmarks.measure", "full", cell, str(folder)]
    own = mapped = 0
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            own, mapped = max(own, _bytes(status, "RssAnon")), max(mapped, _bytes(status, "RssFile"))
            time.sleep(_SAMPLE_S)
    if process.returncode:
        raise SystemExit(process.returncode)
    return own, mapped


def _bytes(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return 0 if found is None else int(found[1]) * 1024  # a process that has just exited has none


if __name__ == "__main__":
    main()
