# shellcheck shell=sh
# Fetches jars by Maven, which apt-get installs where it is missing and may be. To be sourced after apt.sh.

# Puts the jars that tests/servers/jars/<part>.xml names into .work/jars/<part>, for each part, and tells the tests
# where they are. Fails where there is no Maven.
fetch_jars() {
    DAGSTER_CKPT_TEST_JARS=$PWD/.work/jars
    export DAGSTER_CKPT_TEST_JARS
    for part in "$@"; do
        jars=$DAGSTER_CKPT_TEST_JARS/$part
        [ -d "$jars" ] && [ "$jars" -nt "tests/servers/jars/$part.xml" ] && continue
        if ! command -v mvn >/dev/null; then
            if ! may_install; then
                printf '%s\n' "Jars are fetched by Maven. Install it as root: apt-get install maven" >&2
                return 1
            fi
            apt_update
            apt_install maven || return 1
        fi
        printf '%s\n' "Fetching the jars of tests/servers/jars/$part.xml"
        rm -rf "$jars" "$jars.partial"
        mvn --quiet --batch-mode --file "tests/servers/jars/$part.xml" \
            dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$jars.partial" || return 1
        mv "$jars.partial" "$jars"
        touch "$jars"
    done
}
