# shellcheck shell=sh
# Finds a Java that this package is tested on, 17 or 21; DAGSTER_CKPT_TEST_JAVA=21 accepts that one alone. To be sourced; sets
# JAVA_HOME, installs nothing.

# Prints "VERSION HOME" of a java program: "1.8 /usr/lib/jvm/java-8/jre", "17 /usr/lib/jvm/java-17"; nothing if it is no Java.
# Asking the program itself sees through links and the shims of version managers.
java_facts() {
    "$1" -XshowSettings:properties -version 2>&1 | sed -n '
        s/^ *java\.home = //p
        s/^ *java\.specification\.version = /version /p' | {
        version=
        home=
        while read -r first rest; do
            case $first in
                version) version=$rest ;;
                *) home="$first${rest:+ $rest}" ;;
            esac
        done
        [ -z "$version" ] || [ -z "$home" ] || printf '%s %s\n' "$version" "$home"
    }
}

# Sets JAVA_HOME and java_version to the first Java that fits: JAVA_HOME's own, the one on PATH, those that GitHub's machines
# name in JAVA_HOME_17_X64 and the like, then Debian's folder of them.
# Fails if there is none; java_seen then lists those that do not fit.
find_java() {
    java_seen=
    for java_program in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java || true)" \
        ${JAVA_HOME_17_X64:+"$JAVA_HOME_17_X64/bin/java"} ${JAVA_HOME_21_X64:+"$JAVA_HOME_21_X64/bin/java"} \
        "${JVM_FOLDER:-/usr/lib/jvm}"/*/bin/java; do
        [ -x "$java_program" ] || continue
        facts=$(java_facts "$java_program")
        java_version=${facts%% *}
        case $java_version in
            17 | 21)
                if [ "${DAGSTER_CKPT_TEST_JAVA:-$java_version}" = "$java_version" ]; then
                    JAVA_HOME=${facts#* }
                    export JAVA_HOME
                    return 0
                fi
                ;;
        esac
        [ -z "$java_version" ] || java_seen="$java_seen${java_seen:+, }Java $java_version (${facts#* })"
    done
    return 1
}

java_is_missing() {
    cat <<END
Spark needs a Java runtime, version ${DAGSTER_CKPT_TEST_JAVA:-17 or 21}; found: ${java_seen:-none}.
Install one as root, for example with
    apt-get install openjdk-${DAGSTER_CKPT_TEST_JAVA:-17}-jre-headless
or set JAVA_HOME to the folder of one that you have, and try again.
END
}
