"""The code location: `dagster dev -w workspace.yaml` loads it.

`build_streaming_definitions` would do all of this in one call; here the parts have a folder each, to be looked at.
"""

import dagster as dg

from assets import REPORTS, STREAMS
from resources import RESOURCES
from sensors import SENSORS

flights_in_time_job = dg.define_asset_job(
    "flights_in_time_job",
    selection=dg.AssetSelection.groups("flights_in_time"),
    executor_def=dg.in_process_executor,
    description="The streams that work through what there is, one after another in one Dagster run.",
)

carrier_report_job = dg.define_asset_job(
    "carrier_report_job",
    selection=REPORTS,
    executor_def=dg.in_process_executor,
    description="Draws the report anew from what the streams have committed, whether they are at work or not.",
)

defs = dg.Definitions(
    assets=[*STREAMS, *REPORTS],
    sensors=SENSORS,
    resources=RESOURCES,
    jobs=[flights_in_time_job, carrier_report_job],
)
