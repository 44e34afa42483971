"""The files of Spark's sql-tests: run by `make test-sql-tests`, which fetches their jar."""

import os

import pytest

from scripts import proofs
from tests.sql_tests.kept import KEPT

PROOF = "Spark's sql-tests as streams, against Spark in batch after every epoch"
PLANS_ALONE = os.environ.get("DAGSTER_CKPT_TEST_PLANS") == "1"

collect_ignore_glob = [] if os.environ.get("DAGSTER_CKPT_TEST_JARS") else ["test_*.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Publish what a run of all files came to: each asserts how many of its queries are kept up to date."""
    files = len(terminalreporter.stats.get("passed", ()))
    if exitstatus == pytest.ExitCode.OK and files == len(KEPT) and proofs.asked_for() and not PLANS_ALONE:
        proofs.publish(PROOF, f"{sum(KEPT.values()):,} queries of {files} files, none differs")
