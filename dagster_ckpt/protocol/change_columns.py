"""What the change log adds to the columns of a stream's table, in the words of Spark's and Delta's change feeds."""

import pyarrow as pa

EPOCH = "_epoch"
CHANGE_TYPE = "_change_type"

INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"
"""The values of `_change_type`; an update is two rows."""

CHANGE_FIELDS = (pa.field(EPOCH, pa.int64(), nullable=False), pa.field(CHANGE_TYPE, pa.string(), nullable=False))
