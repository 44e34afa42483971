# The image of deploy/Dockerfile as Spark starts it on Kubernetes: by Spark's entry point, which pip does not bring.
# Executors have the same Python and libraries as the driver, since it is the same image. From the checkout:
#
#     docker build --file deploy/kubernetes/executor.Dockerfile --tag shop-streams-executor .
#
# Spark's version is that of pyspark in constraints.txt.

FROM apache/spark:4.2.1 AS spark

FROM shop-streams
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s "$(dirname "$(dirname "$(readlink -f /usr/bin/java)")")" /opt/java
COPY --from=spark /opt/entrypoint.sh /opt/entrypoint.sh
ENV JAVA_HOME=/opt/java SPARK_HOME=/opt/venv/lib/python3.11/site-packages/pyspark
USER dagster
WORKDIR /tmp
ENTRYPOINT ["/opt/entrypoint.sh"]
