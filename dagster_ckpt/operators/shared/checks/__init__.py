"""What a pipeline may be. Each error names the column, the reason, and what there is.

Reading order

    pipeline_checks   names, types, keys and event time of every step
    window_checks     aggregates over windows
    updating_checks   steps over a table that updates and deletes rows
"""
