#!/bin/sh
# Runs the tests of stores on servers of this machine's loopback: fake-gcs-server (built by Go), Azurite (npm) and HDFS
# (Maven). What is missing is installed where that is possible. Words after the command go to pytest.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
. scripts/jars.sh

DAGSTER_CKPT_TEST_STORES=$PWD/.work/stores
export DAGSTER_CKPT_TEST_STORES
log=.work/stores.log
mkdir -p "$DAGSTER_CKPT_TEST_STORES"
: >"$log"

fake_gcs=v1.56.1
azurite=3.37.0

if [ ! -x "$DAGSTER_CKPT_TEST_STORES/fake-gcs-server" ]; then
    if ! command -v go >/dev/null; then
        printf '%s\n' "fake-gcs-server is built by Go: install Go 1.25 or newer and try again." >&2
        exit 1
    fi
    printf '%s\n' "Building fake-gcs-server $fake_gcs (some minutes if Go has nothing in its cache)"
    GOBIN=$DAGSTER_CKPT_TEST_STORES go install "github.com/fsouza/fake-gcs-server@$fake_gcs"
fi

if [ ! -d "$DAGSTER_CKPT_TEST_STORES/node_modules/azurite" ]; then
    if ! command -v npm >/dev/null; then
        if ! may_install; then
            printf '%s\n' "Azurite is installed by npm. Install it as root: apt-get install npm" >&2
            exit 1
        fi
        apt_update
        apt_install npm || exit 1
    fi
    printf '%s\n' "Installing Azurite $azurite"
    npm install --silent --no-save --no-package-lock --prefix "$DAGSTER_CKPT_TEST_STORES" "azurite@$azurite" >>"$log" 2>&1 ||
        { tail -n 20 "$log" >&2; exit 1; }
fi

fetch_jars hdfs

if ! .venv/bin/python -c 'import adlfs, gcsfs, requests' 2>/dev/null; then
    printf '%s\n' "Installing adlfs and gcsfs into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
        --editable '.[azure,gcs,hdfs]'
fi

exec scripts/run.sh python -m pytest -q -p no:cacheprovider tests/stores "$@"
