"""The session a streaming asset's function is given."""

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

_FOREVER = "36500d"


class NoMaxFileAgeSession(SparkSession):
    """A SparkSession whose file sources never pass over a file because it is old.

    Spark's own default forgets files a week older than the newest one, and never reads one that comes later with such a
    date: rows lost without a word. Whoever sets `maxFileAge` himself still gets what he asks for.
    """

    @property
    def readStream(self) -> DataStreamReader:  # noqa: N802  (Spark's name)
        return super().readStream.option("maxFileAge", _FOREVER)
