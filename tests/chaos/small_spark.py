"""The Spark of the code locations under fire: small, quiet, on loopback alone."""

from dagster_pyspark import LazyPySparkResource


def small_spark() -> LazyPySparkResource:
    return LazyPySparkResource(
        spark_config={
            "spark.master": "local[2]",
            "spark.driver.memory": "512m",
            # A JVM that is soon killed need not compile itself warm, and three of them share two cores.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    )
