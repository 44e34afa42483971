#!/bin/sh
# Runs a command that needs PostgreSQL, Kafka and the drivers of all destinations: scripts/with_servers.sh python -m demo.kafka
# Servers are started by the command, on this machine's loopback; here they are installed where they are missing, if that
# is possible. Without Maven there is no Kafka, and it says so.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
. scripts/jars.sh

log=.work/servers.log
mkdir -p .work
: >"$log"

need_postgresql || exit 1

if ! .venv/bin/python -c 'import adbc_driver_postgresql, confluent_kafka, deltalake, psycopg2, pyiceberg' 2>/dev/null; then
    printf '%s\n' "Installing the drivers of the destinations into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
        --editable '.[deltalake,iceberg,kafka,postgres]' 'pyiceberg[sql-postgres]'
fi

if ! fetch_jars broker connector; then
    unset DAGSTER_CKPT_TEST_JARS
    printf '%s\n' "There is no Kafka: what needs it is left out."
fi

exec scripts/run.sh "$@"
