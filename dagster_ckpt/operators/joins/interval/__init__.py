"""The interval join.

Reading order

    interval_join     the operator
    interval_state    rows by key and bucket, and those not matched yet
    interval_matches  what arriving rows match in the other input's table
    bucket_lookups    the buckets to look into, few at a time
"""
