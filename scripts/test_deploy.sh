#!/bin/sh
# Runs the tests of deploy/, of a cluster of Spark and of Kafka: servers of this machine, on its loopback.
# PostgreSQL is installed by apt-get where it is missing and may be; without Maven the test of Kafka is skipped, and it says so.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

venv=${VENV:-.venv}
work=$PWD/.work/deploy
log=.work/deploy.log
mkdir -p "$work"
: >"$log"

if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    if ! may_install; then
        printf '%s\n' "The tests of deploy/ need PostgreSQL. Install it as root: apt-get install postgresql" >&2
        exit 1
    fi
    apt_update
    apt_install postgresql || exit 1
fi

if ! "$venv/bin/python" -c 'import dagster_k8s, dagster_postgres, kubernetes_validate' 2>/dev/null; then
    printf '%s\n' "Installing what the tests of deploy/ need into $venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
        --editable '.[deploy,test-deploy]'
fi

if command -v mvn >/dev/null; then
    for part in broker connector; do
        [ -d "$work/kafka/$part" ] && continue
        printf '%s\n' "Fetching the jars of Kafka's $part"
        mvn --quiet --batch-mode --file "tests/deploy/$part.xml" \
            dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/kafka/$part.partial"
        mv "$work/kafka/$part.partial" "$work/kafka/$part"
    done
    DAGSTER_CKPT_TEST_KAFKA=$work/kafka
    export DAGSTER_CKPT_TEST_KAFKA
else
    printf '%s\n' "There is no Maven to fetch Kafka with: its test is skipped."
fi

DAGSTER_CKPT_TEST_DEPLOY=1
export DAGSTER_CKPT_TEST_DEPLOY
exec scripts/run.sh python -m pytest -q -p no:cacheprovider tests/deploy "$@"
