# shellcheck shell=sh
# A Python as executors need it: libraries, without Dagster and without this package. To be sourced, with `venv` set.

executors=$PWD/.work/executors
if ! "$executors/bin/python" -c 'import numpy, pyarrow, s3fs' 2>/dev/null; then
    printf '%s\n' "Making a Python for executors in .work/executors"
    "$venv/bin/python" -m venv --clear "$executors"
    "$executors/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt numpy pyarrow s3fs
fi
DAGSTER_CKPT_TEST_EXECUTORS=$executors
export DAGSTER_CKPT_TEST_EXECUTORS
