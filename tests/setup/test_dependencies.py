"""What the package needs is named by the package, not left to what another one happens to bring."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PARTS = {"azure.core": "azure-core", "azure.storage": "azure-storage-blob", "google.auth": "google-auth"}
"""The distributions of packages that share their first name with others."""
USERS_OWN = {"polars", "pytest"}
"""Imported only for a user who has annotated an input with it, or who tests a destination."""


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def imported() -> Iterator[str]:
    """The distribution of each third-party module that the package imports."""
    distributions = packages_distributions()
    package = CHECKOUT / "dagster_ckpt"
    # Not what `init` copies: that is a user's project.
    for file in set(package.rglob("*.py")) - set((package / "cli" / "project" / "template").rglob("*")):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                modules = [node.module]
            shared = {PARTS.get(".".join(module.split(".")[:2])) for module in modules} - {None}
            yield from map(str, shared)
            for module in (
                {module.partition(".")[0] for module in modules if not shared}
                - sys.stdlib_module_names
                - {"dagster_ckpt"}
            ):
                # That of an extra that is not installed has the module's name.
                yield from map(canonicalize_name, distributions.get(module, [module]))


def test_dependencies_name_fsspec() -> None:
    assert "fsspec" in names(PROJECT["dependencies"])


def test_dependencies_name_each_distribution_the_package_imports() -> None:
    extras = ("azure", "deltalake", "gcs", "hdfs", "iceberg", "kafka", "postgres", "s3", "sketches", "sql")
    direct = names([*PROJECT["dependencies"], *(each for extra in extras for each in EXTRAS[extra])])
    assert set(imported()) - direct == USERS_OWN


def test_dependencies_are_sorted() -> None:
    for requirements in (PROJECT["dependencies"], *EXTRAS.values()):
        assert [Requirement(each).name for each in requirements] == sorted(
            Requirement(each).name for each in requirements
        )
