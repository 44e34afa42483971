"""Names that Dagster sees: of ops, jobs and sensors, made from asset keys; our resource key and run tags.

Dagster refuses in an op's name what it allows in an asset key (dots, slashes, letters outside ASCII), so those keys get
a unique name.
"""

import re
from collections.abc import Mapping
from hashlib import sha256

import dagster as dg

from dagster_ckpt.protocol.object_names import name_of

IO_MANAGER_KEY = "epochs"
"""The resource key of the IO manager through which ordinary assets read a stream's table."""

ATTEMPT_TAG = "dagster_ckpt/attempt"
"""The number of a relaunch in a row; the first is 1."""

EPOCH_TAG = "dagster_ckpt/epoch"
"""The newest epoch ever committed when a Dagster run was relaunched: a later one is progress."""

SAME_ERROR_TAG = "dagster_ckpt/same_error"
"""The error of the Dagster runs before this one, and how many in a row failed with it: it identifies a crash loop."""

UNAVAILABLE_TAG = "dagster_ckpt/unavailable"
"""How many Dagster runs in a row before this one ended because the store or Spark's master did not answer."""

MAY_FENCE_TAG = "dagster_ckpt/may_fence"
"""The one term that a Dagster run may fence without waiting, because the sensor has judged its writer dead."""

STREAM_TAG = "dagster_ckpt/stream"
"""The stream that a Dagster run works on."""

CODE_VERSION_TAG = "dagster_ckpt/code_version"
"""The asset's code version that a continuous Dagster run was started with."""

NOT_ROLLED_BACK_TAG = "dagster_ckpt/not_rolled_back"
"""The epoch of a rollback requested of the Dagster run that this one replaces: it ended before it could do it."""

LAUNCHED_FOR_TAG = "dagster_ckpt/launched_for"
"""The code version that the sensor knew when it launched a Dagster run; the run itself may have loaded newer code."""

REPLACES_TAG = "dagster_ckpt/replaces"
"""The Dagster run in whose place the sensor launched this one, to recover the stream."""

REASON_TAG = "dagster_ckpt/reason"
"""Why the sensor did so."""

REBUILD_TAG = "dagster_ckpt/rebuild"
"""The Dagster run that asked first for the rebuild which this one goes on with."""

DRAIN_TAG = "dagster_ckpt/drain"
"""Put on a live Dagster run to end it cleanly at its next epoch. The value is the reason."""

NO_VERSION = "none"
"""The code version of an asset without one, in tags."""

NO_DRAIN = "no"
"""The drain tag that a retry carries: Dagster copies it from the run that was asked to drain."""

TURN_TAG = "dagster_ckpt/turn"
"""The step whose turn it is in a Dagster run with several streams: the others of it wait."""

UNFIT_TAG = "dagster_ckpt/unfit"
"""The Dagster run and the stream whose pipeline is invalid: see `unfit`."""

_NAME = re.compile(r"[A-Za-z0-9_]+")
_FOREIGN = re.compile(r"[^A-Za-z0-9_]+")


def rebuild_request(run: dg.DagsterRun) -> str:
    """Who asked for the rebuild of this Dagster run: a stream is rebuilt once for each such request."""
    return run.tags.get(REBUILD_TAG) or run.root_run_id or run.run_id


def op_name_of(key: dg.AssetKey) -> str:
    """The name of the op that computes this asset: Dagster's if it is valid, else one that ends in a hash."""
    name = _dagsters_name(key)
    if is_plain(key):
        return name
    return f"{_FOREIGN.sub('_', name).strip('_')}_{_digest(key)}".lstrip("_")


def is_plain(key: dg.AssetKey) -> bool:
    """Whether the names that Dagster makes of this key are valid to Dagster."""
    return _NAME.fullmatch(_dagsters_name(key)) is not None


def job_name_of(op_name: str, prefix: str | None = None) -> str:
    """The name of the job that runs this stream alone. Not the op's: Dagster requires different names."""
    return "_".join(part for part in (prefix, op_name, "job") if part)


def distinct_names(names: Mapping[dg.AssetKey, str]) -> dict[dg.AssetKey, str]:
    """Unique names, in any order: of keys that share one, the key with the fewest parts keeps it."""
    distinct: dict[dg.AssetKey, str] = {}
    for key in sorted(names, key=lambda key: (len(key.path), key.path)):
        taken = names[key] in distinct.values()
        distinct[key] = f"{names[key]}_{_digest(key)}" if taken else names[key]
    return distinct


def unfit(run_id: str, stream: str) -> str:
    """The value of `UNFIT_TAG`. It names the run, because Dagster copies a run's tags to its retry."""
    return f"{run_id} {stream}"


def drain_requested(tags: Mapping[str, str]) -> bool:
    """Whether a run with these tags is requested to end at its next epoch."""
    return tags.get(DRAIN_TAG, "") not in {"", NO_DRAIN}


def stream_name_of(key: dg.AssetKey) -> str:
    r"""The stream's name for people: the asset key's parts joined by `/`. A slash inside a part is written `\/`."""
    return name_of(key.path)


def _digest(key: dg.AssetKey) -> str:
    return sha256("\0".join(key.path).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _dagsters_name(key: dg.AssetKey) -> str:
    return "__".join(key.path).replace("-", "_")
