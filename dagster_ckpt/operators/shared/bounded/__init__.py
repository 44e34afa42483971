"""Data that may be larger than memory, processed in parts.

Reading order

    due_rows       rows of timelines before a moment, one time range at a time
    lookups        look-ups of many keys
    output_pieces  small tables of output, combined
"""
