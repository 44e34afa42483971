"""Turns pip's installation report (standard input) into pins: `name==version`, sorted, without any address."""

import json
import sys

HEADER = """\
# The versions the tests have run with, of all that pip brings with all extras of pyproject.toml.
# Made by `make constraints`: the newest that pyproject.toml allows. Do not edit.
"""


def pins(report: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    """`name==version` of every package in the report but our own."""
    packages = [entry["metadata"] for entry in report["install"]]
    return sorted(
        (f"{package['name']}=={package['version']}" for package in packages if package["name"] != "dagster-ckpt"),
        key=str.casefold,
    )


if __name__ == "__main__":
    # numpy, for one, has newer versions that only newer Pythons can install.
    if sys.version_info[:2] != (3, 11):
        sys.exit("make constraints needs a .venv of Python 3.11: pins must fit the oldest Python we support")
    print(HEADER + "\n".join(pins(json.load(sys.stdin))))
