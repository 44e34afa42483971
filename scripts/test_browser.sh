#!/bin/sh
# Runs the tests that read pages in a browser: Dagster's UI with streams at work, and the demo's report.
# Installs Chromium by apt-get if there is none, and Playwright into .venv. CHROMIUM= names another program,
# UPDATE=1 replaces the screenshots in docs/images/ui, TESTS= chooses tests.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

log=.work/browser.log
mkdir -p .work
: >"$log"

if [ -z "${CHROMIUM:-}" ] && ! command -v chromium >/dev/null; then
    if may_install; then
        apt_update
        apt_install chromium fonts-dejavu-core || exit 1
    fi
fi
chromium=${CHROMIUM:-$(command -v chromium || true)}
if [ -z "$chromium" ] || [ ! -x "$chromium" ]; then
    printf '%s\n' "The browser tests need Chromium; found: ${chromium:-none}. Install it as root, for example with
    apt-get install chromium
or name one that you have, CHROMIUM=/path/to/chromium, and try again." >&2
    exit 1
fi
printf '%s\n' "Chromium found: $chromium"

if ! .venv/bin/python -c 'import PIL, playwright' 2>/dev/null; then
    printf '%s\n' "Installing Playwright into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
fi

DAGSTER_CKPT_TEST_CHROMIUM=$chromium
export DAGSTER_CKPT_TEST_CHROMIUM
# shellcheck disable=SC2086  # TESTS may name several
exec scripts/run.sh python -m pytest -q -p no:cacheprovider ${TESTS:-tests/browser}
