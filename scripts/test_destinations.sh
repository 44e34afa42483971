#!/bin/sh
# Runs the tests of destinations on real servers, on this machine's loopback. Words after the command go to pytest.
set -eu
cd "$(dirname "$0")/.."

DAGSTER_CKPT_TEST_DESTINATIONS=1
RACES=${RACES:-100}
export DAGSTER_CKPT_TEST_DESTINATIONS RACES
# A test that fails at each of a hundred calls takes minutes on busy cores.
exec scripts/with_servers.sh python -m pytest -q -p no:cacheprovider -o timeout=1200 tests/destinations "$@"
