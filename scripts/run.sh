#!/bin/sh
# Runs a command as an activated .venv would (VENV= names another), with a JAVA_HOME that Spark can use:
# scripts/run.sh python -m demo
set -eu
cd "$(dirname "$0")/.."
. scripts/java.sh

if ! find_java; then
    java_is_missing >&2
    exit 1
fi
# First on PATH, because Spark starts its Python workers as `python3`.
PATH="$PWD/${VENV:-.venv}/bin:$PATH"
export PATH
exec "$@"
