"""Spark, small enough that six streams and Dagster fit on a laptop: each stream is a process with a JVM of its own."""

from dagster_pyspark import LazyPySparkResource

spark = LazyPySparkResource(
    spark_config={
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",  # else the host's: another host would see other days
    }
)
