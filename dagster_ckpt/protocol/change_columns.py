"""The columns that the change log adds to a stream's table, named as in the change feeds of Spark and Delta."""

import pyarrow as pa

EPOCH = "_epoch"
CHANGE_TYPE = "_change_type"

INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"
"""The values of `_change_type`; an update is two rows."""

CHANGE_FIELDS = (pa.field(EPOCH, pa.int64(), nullable=False), pa.field(CHANGE_TYPE, pa.string(), nullable=False))
