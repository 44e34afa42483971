#!/bin/sh
# Runs the tests of stores on S3 against a real server on this machine's loopback: versitygw, built by Go.
# Without Go they are skipped, and it says so; `make test` runs them on moto's server all the same.
set -eu
cd "$(dirname "$0")/.."

folder=$PWD/.work/s3
program=$folder/versitygw
version=v1.8.0

if [ ! -x "$program" ]; then
    if ! command -v go >/dev/null; then
        printf '%s\n' "Skipped: there is no Go to build a real S3 server with. Install Go 1.24 or newer and try again."
        exit 0
    fi
    printf '%s\n' "Building versitygw $version (some minutes if Go has nothing in its cache)"
    mkdir -p "$folder"
    GOBIN=$folder go install "github.com/versity/versitygw/cmd/versitygw@$version"
fi
DAGSTER_CKPT_TEST_S3=$program
export DAGSTER_CKPT_TEST_S3
exec scripts/run.sh python -m pytest -q tests/contract tests/spark/test_a_stream_on_s3.py -k s3
