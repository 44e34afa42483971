"""How a stream runs: the attributes that a stream and a folder of streams in SQL have alike."""

from typing import Annotated, Literal

import dagster as dg

from dagster_ckpt.integration.component.templates import text, texts_by_name

Mode = Annotated[
    Literal["available_now", "continuous"],
    dg.Resolver.default(description="Process the available input, then end; or commit an epoch every interval."),
]
CheckpointInterval = Annotated[str | None, text("The time between two epochs of a continuous stream.")]
Autostart = Annotated[
    bool, dg.Resolver.default(description="The sensor also starts a continuous stream that has never run.")
]
RunFor = Annotated[str, text("A continuous run ends cleanly after this, and the next one begins.")]
Shards = Annotated[
    int, dg.Resolver.default(description="Hash partitions of the keys, a power of two; fixed once there is state.")
]
Moved = Annotated[dict[str, str], texts_by_name("The old addresses of source folders or buckets, and the new ones.")]
