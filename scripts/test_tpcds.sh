#!/bin/sh
# Keeps the queries of TPC-DS up to date and compares with batch. They are those of Spark's own tests, whose jar Maven
# fetches; apt-get installs Maven where it is missing and may be. Words after the command go to pytest.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
. scripts/jars.sh

log=.work/tpcds.log
mkdir -p .work
: >"$log"

fetch_jars queries
exec scripts/run.sh python -m pytest -q -n 2 -p no:cacheprovider -o timeout=900 tests/tpcds "$@"
