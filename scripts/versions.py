"""The versions that this package is tested on, and what came of the last tests on each.

`noxfile.py` makes a session of each environment here and records its result; `python scripts/versions.py` prints them.
"""

import json
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
RESULTS = Path(".work/versions")
JAVAS = ("17", "21")
"""The versions of Java that scripts/java.sh accepts; a test compares the two."""

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


@dataclass(frozen=True)
class Environment:
    """The base, which is what constraints.txt pins on the oldest Python, with at most one thing changed.

    `packages` replace the pins of all packages whose names begin with one of `replaced`.
    """

    name: str
    python: str
    java: str
    packages: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """What is installed, for people."""
        packages = ", ".join(self.packages) or "".join(f"newest {name}" for name in self.replaced) or "pinned packages"
        return f"Python {self.python}, Java {self.java}, {packages}"


@dataclass(frozen=True)
class Result:
    """What a session found: the exact versions, and for each part of the tests a sentence for people."""

    outcome: str
    python: str = ""
    dagster: str = ""
    spark: str = ""
    java: str = ""
    tests: str = ""


def environments(project: Mapping[str, object], pins: Sequence[str]) -> tuple[Environment, ...]:
    """The base and each allowed version of one thing, beside what the base already has.

    `project` is the table of pyproject.toml, `pins` are the lines of constraints.txt.
    """
    oldest, *pythons = python_versions(project)
    base = Environment("base", oldest, JAVAS[0])
    pinned_spark = next(pin for pin in pins if pin.startswith("pyspark==")).removeprefix("pyspark==")
    dagster, spark = ("dagster",), ("pyspark", "py4j")
    oldest_dagster = tuple(f"{name}=={bound(project, name, '>=')}" for name in ("dagster", "dagster-pyspark"))
    oldest_spark = f"pyspark=={bound(project, 'pyspark', '>=')}"
    return (
        base,
        *(Environment(f"python-{python}", python, base.java) for python in pythons),
        Environment("dagster-oldest", base.python, base.java, oldest_dagster, dagster),
        Environment("dagster-newest", base.python, base.java, (), dagster),
        Environment("spark-oldest", base.python, base.java, (oldest_spark,), spark),
        *(
            Environment(f"spark-{line}", base.python, base.java, (f"pyspark=={line}.*",), spark)
            for line in spark_lines(project)
            if not pinned_spark.startswith(f"{line}.")
        ),
        *(Environment(f"java-{java}", base.python, java) for java in JAVAS[1:]),
    )


def python_versions(project: Mapping[str, object]) -> list[str]:
    """The Pythons that pyproject.toml names, the oldest first."""
    classifiers = project["classifiers"]
    assert isinstance(classifiers, list)
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in classifiers]
    return sorted((match[1] for match in found if match), key=Version)


def bound(project: Mapping[str, object], name: str, operator: str) -> str:
    """The version that stands beside an operator (`>=`, `<`) in what pyproject.toml asks of a dependency."""
    dependencies = project["dependencies"]
    assert isinstance(dependencies, list)
    requirement = next(each for each in map(Requirement, dependencies) if each.name == name)
    return next(each.version for each in requirement.specifier if each.operator == operator)


def spark_lines(project: Mapping[str, object]) -> list[str]:
    """The release lines of Spark that pyproject.toml allows, the oldest first: `4.1` of `>=4.1,<4.4` and two more."""
    first, end = (Version(bound(project, "pyspark", operator)) for operator in (">=", "<"))
    assert first.major == end.major, "a new major version of Spark needs a list of lines"
    return [f"{first.major}.{minor}" for minor in range(first.minor, end.minor)]


def kept_pins(environment: Environment, pins: Sequence[str]) -> list[str]:
    """The pins that hold in this environment."""
    return [pin for pin in pins if not pin.startswith(environment.replaced)] if environment.replaced else list(pins)


def read_environments() -> tuple[Environment, ...]:
    """The environments of this checkout."""
    return environments(read_project(), read_pins())


def read_project() -> dict[str, object]:
    """The table `project` of pyproject.toml."""
    project: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def read_pins() -> list[str]:
    """The lines of constraints.txt that are pins."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def write_constraints(environment: Environment) -> Path:
    """A file with the pins that hold in this environment."""
    path = RESULTS / f"{environment.name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{pin}\n" for pin in kept_pins(environment, read_pins())))
    return path


def forget(name: str) -> None:
    """Remove the result of an environment: a run that is killed leaves none, and not an old one."""
    (RESULTS / f"{name}.json").unlink(missing_ok=True)


def record(name: str, result: Result) -> None:
    """Keep the result of an environment for the table."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(asdict(result), indent=2) + "\n")


def recorded(name: str) -> Result:
    """The result of an environment. nox does not begin a session whose Python it has not found."""
    path = RESULTS / f"{name}.json"
    return Result(**json.loads(path.read_text())) if path.exists() else Result(NOT_RUN)


def closing_line(results: Sequence[Result]) -> str:
    """How many environments passed and failed. One that did not run counts as skipped."""
    passed, failed, skipped = (sum(each.outcome == kind for each in results) for kind in (PASSED, FAILED, NOT_RUN))
    return f"environments: {passed} passed, {failed} failed, {skipped} skipped"


def main(names: Sequence[str]) -> int:
    """Print the table of these environments, all if none is named; 1 unless all that ran have passed."""
    from rich.console import Console
    from rich.table import Table

    allowed = {each.name: each for each in read_environments()}
    if unknown := set(names) - allowed.keys():
        sys.exit(f"no environment is called {', '.join(sorted(unknown))}; there are: {', '.join(allowed)}")
    chosen = [each for name, each in allowed.items() if not names or name in names]
    results = [recorded(each.name) for each in chosen]
    table = Table("environment", "Python", "Dagster", "Spark", "Java", "tests", "outcome")
    for each, result in zip(chosen, results, strict=True):
        python, java = result.python or each.python, result.java or each.java
        table.add_row(each.name, python, result.dagster, result.spark, java, result.tests, result.outcome)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(closing_line(results))
    return 0 if {each.outcome for each in results} <= {PASSED, NOT_RUN} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
