#!/bin/sh
# Runs the tests of destinations on real servers, on this machine's loopback. PostgreSQL is installed by apt-get where it
# is missing and may be. Words after the command go to pytest.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

log=.work/destinations.log
mkdir -p .work
: >"$log"

if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    if ! may_install; then
        printf '%s\n' "These tests need PostgreSQL. Install it as root: apt-get install postgresql" >&2
        exit 1
    fi
    apt_update
    apt_install postgresql || exit 1
fi

if ! .venv/bin/python -c 'import adbc_driver_postgresql, deltalake' 2>/dev/null; then
    printf '%s\n' "Installing the drivers of the destinations into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[deltalake,postgres]'
fi

DAGSTER_CKPT_TEST_DESTINATIONS=1
export DAGSTER_CKPT_TEST_DESTINATIONS
exec scripts/run.sh python -m pytest -q -p no:cacheprovider tests/destinations "$@"
