# shellcheck shell=sh
# Installs Debian packages, where this user may. To be sourced; $log is where apt-get's output goes.

# Whether this user may install Debian packages: as root, or by a sudo that asks no password.
may_install() {
    command -v apt-get >/dev/null || return 1
    sudo=
    [ "$(id -u)" = 0 ] && return 0
    sudo="sudo -n"
    $sudo true 2>/dev/null
}

apt() {
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1
}

# Prints the first of these packages that the Debian at hand has; nothing if it has none.
first_offered() {
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            printf '%s\n' "$package"
            return
        fi
    done
}

# Installs these packages. Fails with the end of the log if apt-get could not.
apt_install() {
    printf '%s\n' "Installing by apt-get: $*"
    if ! apt install --no-install-recommends "$@"; then
        tail -n 20 "$log" >&2
        printf '%s\n' "apt-get could not install $*: above is the end of $log" >&2
        return 1
    fi
}

# Installs PostgreSQL's server where it is missing.
need_postgresql() {
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && return
    if ! may_install; then
        printf '%s\n' "PostgreSQL is needed. Install it as root: apt-get install postgresql" >&2
        return 1
    fi
    apt_update
    apt_install postgresql
}

# Reads the lists of packages.
apt_update() {
    # One broken source of packages need not stop us: what counts is whether the install works.
    apt update || printf '%s\n' "apt-get update failed (see $log); going on with the lists that are there"
}
