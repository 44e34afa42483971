"""The files of Spark's sql-tests: run by `make test-spark-sql`, which fetches their jar."""

import os

collect_ignore_glob = [] if os.environ.get("DAGSTER_CKPT_TEST_JARS") else ["test_*.py"]
