"""What may be larger than memory, a part at a time.

Reading order

    due_rows       rows of timelines before a moment, a stretch of time at a time
    hash_ranges    rows of one moment, a range of key hashes at a time
    lookups        rows under many keys
    output_pieces  small tables of output, put together
"""
