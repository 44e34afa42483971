"""The code location: `dagster dev -w workspace.yaml` loads it.

`build_streaming_definitions` would do all of this in one call; here the parts have a folder each, to be looked at.
"""

import dagster as dg

from assets import STREAMS
from resources import RESOURCES
from sensors import SENSORS

defs = dg.Definitions(assets=STREAMS, sensors=SENSORS, resources=RESOURCES)
