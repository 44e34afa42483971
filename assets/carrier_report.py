"""An ordinary asset over two streams, both as of one moment: a page for people, with a picture."""

from pathlib import Path

import dagster as dg
import polars as pl

from resources.places import REPORT

ALIGNED = dg.AssetIn(metadata={"consistency": "aligned"})
"""Each stream commits by itself. Aligned, the one shows exactly what the other was made of."""


@dg.asset(group_name="flights", ins={"delay_by_carrier": ALIGNED, "late_carriers": ALIGNED})
def carrier_report(delay_by_carrier: pl.DataFrame, late_carriers: pl.DataFrame) -> dg.MaterializeResult[None]:
    """Who leaves late, as a page with a picture and the figures."""
    from assets.report_page import page  # here: matplotlib takes long to load, and every run loads the code location

    path = Path(REPORT)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(delay_by_carrier, late_carriers))
    return dg.MaterializeResult(
        metadata={
            "page": dg.MetadataValue.path(path),
            "carriers": delay_by_carrier.height,
            "late_carriers": ", ".join(sorted(late_carriers["carrier"])),
        }
    )
