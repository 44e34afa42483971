#!/bin/sh
# Makes this checkout ready: the pinned packages in .venv, and a Java runtime for Spark.
# It begins with what is there, so it may be run again at any time, also after it was killed half-way. PYTHON= chooses a Python,
# VENV= and EXTRAS= another virtual environment and what goes into it, READY= the file by which make knows that it is ready.
set -eu
cd "$(dirname "$0")/.."
. scripts/java.sh
. scripts/apt.sh

venv=${VENV:-.venv}
ready=${READY:-$venv/.set-up}
extras=${EXTRAS:-demo,dev,dg,docs,s3,sketches,sql}
log=.work/setup.log
started=$(date +%s)

say() {
    printf '%s\n' "$*"
}

stop() {
    printf '%s\n' "$*" >&2
    exit 1
}

# Prints "3.11" of a Python that the pinned packages fit; nothing of any other, or of what is no Python.
fitting_version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null | grep -x -e 3.11 -e 3.12 -e 3.13 || true
}

find_python() {
    # A Python that somebody named is used or refused, never silently replaced.
    if [ -n "${PYTHON:-}" ]; then
        version=$(fitting_version "$PYTHON")
        [ -n "$version" ] || stop "PYTHON must name a Python 3.11, 3.12 or 3.13. PYTHON=$PYTHON"
        python=$PYTHON
        return
    fi
    for python in python3.11 python3 python3.12 python3.13; do
        version=$(fitting_version "$python")
        [ -z "$version" ] || return 0
    done
    stop "Python 3.11, 3.12 or 3.13 is needed and none is on PATH. Install one as root, for example with
    apt-get install python3.11 python3.11-venv
or name one: make PYTHON=/path/to/python3.11 setup"
}

venv_works() {
    [ -n "$(fitting_version "$venv/bin/python")" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

has_ensurepip() {
    "$python" -c 'import ensurepip' 2>/dev/null
}

# Installs what is missing and can be had. What could not be had is told by whoever needs it.
install_missing() {
    apt_update
    set --
    # shellcheck disable=SC2046  # no word is no argument
    $needs_ensurepip && set -- "$@" $(first_offered "python$version-venv")
    # shellcheck disable=SC2046
    $needs_java && set -- "$@" $(first_offered openjdk-17-jre-headless openjdk-21-jre-headless)
    [ $# -gt 0 ] || return 0
    apt_install "$@" || exit 1
}

make_venv() {
    if has_ensurepip; then
        "$python" -m venv --clear "$venv"
    elif "$python" -m pip --version >/dev/null 2>&1; then
        # Debian's Python without python3.11-venv, where apt-get may not be used but pip is there.
        "$python" -m venv --clear --without-pip "$venv"
        "$python" -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check pip
    else
        stop "This Python cannot make a virtual environment: it has neither ensurepip nor pip. Install one as root, for example with
    apt-get install python$version-venv
or name another Python: make PYTHON=/path/to/python3.11 setup"
    fi
}

# Sets uv to a uv that can be used: the one on PATH, or the pinned one, which pip installs. Fails where there is none, and where
# pip is told to ask another index or proxy than PyPI: uv does not read pip's settings.
find_uv() {
    if "$venv/bin/python" -m pip config list 2>/dev/null | grep -q -E '\.(index-url|extra-index-url|no-index|proxy)='; then
        return 1
    fi
    uv=$(command -v uv) || uv=$venv/bin/uv
    [ -x "$uv" ] || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint constraints.txt uv >>"$log" 2>&1
}

# Installs the package with its extras, and what they need, in the pinned versions. uv takes a third of pip's time, and compiles
# to bytecode as pip does: every Python process that Dagster and Spark start would do it again.
install_packages() {
    if find_uv; then
        say "Installing Python packages with uv"
        # The certificates of this machine, as pip has them; the second name is that of older versions.
        UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 "$uv" pip install --quiet --python "$venv/bin/python" --compile-bytecode \
            --constraint constraints.txt --editable ".[$extras]" 2>>"$log" && return
        say "uv could not (see $log)"
    fi
    say "Installing Python packages with pip (a few minutes if it has none in its cache)"
    # use-pep517: an old pip would build PySpark in a way that newer ones have given up.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --use-pep517 \
        --constraint constraints.txt --editable ".[$extras]"
}

mkdir -p .work
: >"$log"

needs_ensurepip=false
if venv_works; then
    say "Python $(fitting_version "$venv/bin/python") found: $venv"
else
    find_python
    say "Python $version found: $(command -v "$python")"
    has_ensurepip || needs_ensurepip=true
fi
needs_java=false
find_java || needs_java=true

if { $needs_ensurepip || $needs_java; } && may_install; then
    install_missing
fi
find_java || stop "$(java_is_missing)"
say "Java $java_version found: $JAVA_HOME"
venv_works || make_venv

install_packages

# Spark is started many times by the demo and the tests: from an archive of its classes it starts in two thirds of its time.
# The benchmarks measure Spark as it is without.
if [ "$extras" != bench ]; then
    "$venv/bin/dagster-ckpt" class-archive >>"$log" 2>&1 || say "No archive of Spark's classes: all works, slower (see $log)"
fi

touch "$ready"
say "Set-up took $(($(date +%s) - started)) s"
