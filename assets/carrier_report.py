"""An ordinary asset over two streams, both as of one moment: a page for people, with a picture."""

from pathlib import Path

import dagster as dg
import polars as pl

from assets.delay_by_carrier import delay_by_carrier
from assets.late_carriers import late_carriers
from dagster_ckpt import CheckpointCoordinatorResource
from resources.places import REPORT

UPSTREAM, DOWNSTREAM = "delay_by_carrier", "late_carriers"


@dg.asset(group_name="flights", deps=[delay_by_carrier, late_carriers])
def carrier_report(checkpoints: CheckpointCoordinatorResource) -> dg.MaterializeResult[None]:
    """Who leaves late, as a page with a picture, the figures, and the epochs that they are from."""
    from assets.report_page import ShownEpoch, page  # here: every run loads the code location, and few need the page

    # Each stream commits by itself. Aligned, the one shows exactly what the other was made from.
    cut = checkpoints.store().snapshot([UPSTREAM, DOWNSTREAM], consistency="aligned")
    delays, late = (pl.DataFrame(cut.read(stream)) for stream in (UPSTREAM, DOWNSTREAM))
    above, below = cut.info(UPSTREAM), cut.info(DOWNSTREAM)
    shown = [
        ShownEpoch(UPSTREAM, above.epoch, above.committed_at, departures_until=above.event_time),
        ShownEpoch(DOWNSTREAM, below.epoch, below.committed_at, made_from=f"epoch {above.epoch} of {UPSTREAM}"),
    ]
    path = Path(REPORT)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(delays, late, shown))
    return dg.MaterializeResult(
        metadata={
            "page": dg.MetadataValue.path(path),
            "carriers": delays.height,
            "late_carriers": ", ".join(sorted(late["carrier"])),
            **{f"epoch/{each.stream}": each.epoch for each in shown},
        }
    )
