#!/bin/sh
# Runs a module on a standalone cluster of Spark, with all it needs: MODULE=tests.chaos.on_spark scripts/cluster.sh --kills 40
# What has to be fetched is fetched here: the run itself has no network but its own, where it may make one.
set -eu
cd "$(dirname "$0")/.."
. scripts/s3_server.sh

venv=${VENV:-.venv}
. scripts/executors.sh
need_s3_server || exit 1
exec scripts/run.sh python -m "${MODULE:-tests.chaos.on_spark}" "$@"
