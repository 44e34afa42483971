"""A stream that reads a stream, epoch by epoch."""

from dagster_ckpt import Stream, streaming_asset


@streaming_asset(group_name="flights", mode="continuous")
def late_carriers(delay_by_carrier: Stream) -> Stream:
    """The carriers that are more than a quarter of an hour late on average; one that makes up for it leaves."""
    return delay_by_carrier.where("mean_delay > 15")
