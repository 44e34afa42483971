#!/bin/sh
# Runs the tests of stores on S3 against a real server on this machine's loopback: versitygw, built by Go.
# Without Go they are skipped, and it says so; `make test` runs them on moto's server all the same.
set -eu
cd "$(dirname "$0")/.."
. scripts/s3_server.sh

need_s3_server || exit 0
exec scripts/run.sh python -m pytest -q tests/contract tests/spark/test_a_stream_on_s3.py -k s3
