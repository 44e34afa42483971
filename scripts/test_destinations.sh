#!/bin/sh
# Runs the tests of destinations on real servers, on this machine's loopback. Words after the command go to pytest.
set -eu
cd "$(dirname "$0")/.."

DAGSTER_CKPT_TEST_DESTINATIONS=1
export DAGSTER_CKPT_TEST_DESTINATIONS
exec scripts/with_servers.sh python -m pytest -q -p no:cacheprovider tests/destinations "$@"
