"""Kafka, beside Spark's own source: what is lost, since when records wait, and consumer groups.

Spark reads the records. Its connector brings Kafka's Java client, which these modules use in Spark's JVM.

Reading order

    brokers        what a cluster answers
    group_commits  the committed offsets, written to consumer groups too
    topics         the topics of a stream: what cannot be read any more, and since when records wait
"""
