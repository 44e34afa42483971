"""Kafka, beside Spark's own source: lost records, the age of unread ones, and consumer groups.

Spark reads the records. Its connector brings Kafka's Java client, which these modules use in Spark's JVM.

Reading order

    brokers        requests to a cluster
    group_commits  the committed offsets, written to consumer groups too
    topics         the topics of a stream: records that are lost, and the age of unread ones
"""
