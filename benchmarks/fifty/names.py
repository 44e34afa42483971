"""What the location and those who measure it agree on."""

STREAMS_VARIABLE = "DAGSTER_CKPT_BENCH_STREAMS"
URL_VARIABLE = "DAGSTER_CKPT_BENCH_URL"


def name_of(number: int) -> str:
    """The name of a stream, from 0."""
    return f"stream_{number:02}"
