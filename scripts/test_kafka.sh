#!/bin/sh
# Runs the tests of streams that read Kafka, on a broker of this machine's loopback. Maven fetches it, with Spark's
# connector; apt-get installs Maven where it is missing and may be. Words after the command go to pytest.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
. scripts/jars.sh

log=.work/kafka.log
mkdir -p .work
: >"$log"

fetch_jars broker connector formats
exec scripts/run.sh python -m pytest -q -p no:cacheprovider tests/kafka "$@"
