#!/bin/sh
# Format, lint, words, types, import layers and the links of docs/. The types take half of the time, alongside the rest.
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin
failed=0

mkdir -p .work
"$bin/mypy" >.work/types.txt 2>&1 &
types=$!
"$bin/ruff" format --check . || failed=1
"$bin/ruff" check . || failed=1
"$bin/python" -m scripts.words || failed=1
if "$bin/lint-imports" --no-logo >.work/layers.txt; then
    tail -n 1 .work/layers.txt
else
    cat .work/layers.txt
    failed=1
fi
"$bin/python" -m sphinx -q -W -E -d .work/docs-check -b dummy docs .work/docs-check || failed=1
wait $types || failed=1
cat .work/types.txt
exit $failed
