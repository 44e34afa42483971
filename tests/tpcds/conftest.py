"""The queries of TPC-DS as Spark's own tests have them: run by `make test-tpcds`, which fetches their jar."""

import os

collect_ignore_glob = [] if os.environ.get("DAGSTER_CKPT_TEST_JARS") else ["test_*.py"]
