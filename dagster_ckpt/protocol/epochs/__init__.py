"""Epochs of a stream: which are current, kept, pinned, aligned with those of other streams, and read.

Reading order

    lineage        the epochs that the newest one builds on, and those that a rollback abandoned
    retention      what of a stream is needed, and what is garbage
    pin            a name that keeps one epoch readable
    upstream       what a stream has consumed of another, and what comes next
    topic_offsets  how far Kafka's topics were read, and what of them cannot be read
    subscriber     a stream that reads another one's change log
    aligned_cut    which epochs of several streams belong together
"""
