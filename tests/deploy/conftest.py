"""Tests of the files in deploy/ and of clusters, which need servers and further packages: `make test-deploy`."""

import os

collect_ignore_glob = [] if os.environ.get("DAGSTER_CKPT_TEST_DEPLOY") else ["test_*.py"]
