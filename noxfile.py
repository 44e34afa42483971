"""One session for each environment of `scripts/versions.py`: `make versions` runs them all and prints a table.

    make versions                                       # the fast tests and the README's first example, everywhere
    make versions ONLY='spark-4.3 java-21'              # in some environments
    make versions ONLY=spark-4.3 TESTS='tests/spark'    # other tests

uv makes the virtual environments, and fetches a Python that is missing if it can. Java has to be there: a session
without its Java is skipped, in CI (`CI` is set) it fails.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from scripts import versions  # noqa: E402  (nox puts its program's folder on the path, not the checkout's)
from scripts.test import outcome  # noqa: E402

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"

FACTS = """
import json, platform
from importlib.metadata import version
print(json.dumps({"python": platform.python_version(), "dagster": version("dagster"), "spark": version("pyspark")}))
"""
JAVA = r"""
"$JAVA_HOME/bin/java" -version 2>&1 | sed -n 's/.* version "\(.*\)".*/\1/p'
"""
EXTRAS = ".[demo,dev,s3,sketches,sql]"
REPORTS = Path(".work/tests")


def run_tests(session: nox.Session, environment: versions.Environment) -> None:
    """Install the environment, run its tests and record what came of them."""
    versions.forget(environment.name)
    folder = str(Path(session.virtualenv.location).relative_to(ROOT))
    variables = {"VENV": folder, "DAGSTER_CKPT_TEST_JAVA": environment.java}
    try:
        java = session.run("scripts/run.sh", "sh", "-c", JAVA, env=variables, external=True, silent=True)
    except CommandFailed:
        missing = f"no Java {environment.java} found"
        versions.record(environment.name, versions.Result(versions.NOT_RUN, tests=missing))
        stop = session.error if "CI" in os.environ else session.skip
        stop(missing)
        raise
    constraints = str(versions.write_constraints(environment))
    # pip, because a test installs the wheel as a user does.
    session.install("--constraint", constraints, "--editable", EXTRAS, "pip", *environment.packages)
    facts = session.run("python", "-c", FACTS, silent=True)
    if facts is None:
        session.skip("--install-only runs no test")
    found = {"java": str(java).strip(), **json.loads(str(facts))}
    session.run("scripts/run.sh", "dagster-ckpt", "class-archive", env=variables, external=True)  # as make setup does
    shutil.rmtree(REPORTS, ignore_errors=True)
    parts = session.posargs or ["fast", "stream"]
    try:
        session.run("scripts/run.sh", "python", "scripts/test.py", *parts, env=variables, external=True)
    except CommandFailed:
        versions.record(environment.name, versions.Result(versions.FAILED, tests=counts(), **found))
        raise
    versions.record(environment.name, versions.Result(versions.PASSED, tests=counts(), **found))


def counts() -> str:
    """What came of each part of the tests, for people."""
    outcomes = {report.stem: outcome(0, report.read_text()) for report in sorted(REPORTS.glob("*.xml"))}
    return "\n".join(
        f"{name}: {each.passed} passed" + (f", {each.failed} failed" if each.failed else "")
        for name, each in outcomes.items()
    )


def add_session(environment: versions.Environment) -> None:
    """Make a session of an environment."""

    def tests(session: nox.Session) -> None:
        run_tests(session, environment)

    tests.__doc__ = environment.description
    nox.session(tests, name=environment.name, python=environment.python)


for each in versions.read_environments():
    add_session(each)
