#!/bin/sh
# Keeps queries of Spark's own tests up to date and compares with batch: those of TPC-DS (tests/tpcds), or of its
# sql-tests (tests/sql_tests). Maven fetches their jar; apt-get installs Maven where it is missing and may be. The first
# word is the folder of the tests, those after it go to pytest.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
. scripts/jars.sh

log=.work/$(basename "$1").log
mkdir -p .work
: >"$log"

fetch_jars queries
exec scripts/run.sh python -m pytest -q -n 2 -p no:cacheprovider -o timeout=900 "$@"
