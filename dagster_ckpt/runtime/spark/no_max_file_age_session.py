"""The session that a streaming asset's function gets."""

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

_FOREVER = "36500d"


class NoMaxFileAgeSession(SparkSession):
    """A SparkSession whose file sources never skip a file because it is old.

    By default Spark forgets files a week older than the newest one, and never reads one that arrives later with such a
    date: rows are lost silently. A `maxFileAge` that the user sets still applies.
    """

    @property
    def readStream(self) -> DataStreamReader:  # noqa: N802  (Spark's name)
        return super().readStream.option("maxFileAge", _FOREVER)
