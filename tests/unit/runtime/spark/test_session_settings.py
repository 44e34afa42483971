from dagster_ckpt.runtime.spark.session import announce_settings


def test_what_streams_need_is_put_before_the_users_own_arguments() -> None:
    environ = {"PYSPARK_SUBMIT_ARGS": "--driver-memory 2g pyspark-shell"}
    announce_settings(environ)
    words = environ["PYSPARK_SUBMIT_ARGS"].split()
    assert words[-3:] == ["--driver-memory", "2g", "pyspark-shell"]
    assert "spark.stage.maxConsecutiveAttempts=1" in words
    assert "spark.stage.ignoreDecommissionFetchFailure=false" in words
    assert "spark.python.unix.domain.socket.enabled=true" in words
    assert "spark.python.unix.domain.socket.dir=/tmp" in words


def test_announcing_twice_changes_nothing_more() -> None:
    environ: dict[str, str] = {}
    announce_settings(environ)
    once = dict(environ)
    announce_settings(environ)
    assert environ == once


def test_settings_of_the_user_stay() -> None:
    environ = {"PYSPARK_SUBMIT_ARGS": "--conf spark.python.unix.domain.socket.enabled=false pyspark-shell"}
    announce_settings(environ)
    assert environ["PYSPARK_SUBMIT_ARGS"].count("spark.python.unix.domain.socket.enabled") == 1
