#!/bin/sh
# Runs the tests of deploy/ and of a cluster of Spark: servers of this machine, on its loopback.
# PostgreSQL is installed by apt-get where it is missing and may be.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

venv=${VENV:-.venv}
log=.work/deploy.log
mkdir -p .work
: >"$log"

need_postgresql || exit 1

if ! "$venv/bin/python" -c 'import dagster_k8s, dagster_postgres, grpc_status, kubernetes_validate, zstandard' 2>/dev/null; then
    printf '%s\n' "Installing what the tests of deploy/ need into $venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
        --editable '.[deploy,test-deploy]'
fi

. scripts/executors.sh

DAGSTER_CKPT_TEST_DEPLOY=1
export DAGSTER_CKPT_TEST_DEPLOY
exec scripts/run.sh python -m pytest -q -p no:cacheprovider tests/deploy "$@"
