"""The interval join.

Reading order

    interval_join     the operator
    interval_state    the rows of one input, by key and bucket, and those not matched yet
    interval_matches  what arriving rows match in the other input's table
    bucket_lookups    look-ups of buckets, in batches
"""
