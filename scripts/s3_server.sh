# shellcheck shell=sh
# A real S3 server, versitygw, built by Go. To be sourced: `need_s3_server` names its program in DAGSTER_CKPT_TEST_S3.

need_s3_server() {
    s3_folder=$PWD/.work/s3
    DAGSTER_CKPT_TEST_S3=$s3_folder/versitygw
    export DAGSTER_CKPT_TEST_S3
    [ ! -x "$DAGSTER_CKPT_TEST_S3" ] || return 0
    if ! command -v go >/dev/null; then
        printf '%s\n' "There is no Go to build a real S3 server with. Install Go 1.24 or newer and try again."
        return 1
    fi
    s3_version=v1.8.0
    printf '%s\n' "Building versitygw $s3_version (some minutes if Go has nothing in its cache)"
    mkdir -p "$s3_folder"
    GOBIN=$s3_folder go install "github.com/versity/versitygw/cmd/versitygw@$s3_version"
}
