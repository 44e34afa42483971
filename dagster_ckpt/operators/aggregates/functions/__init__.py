"""The functions of `agg`, a family a module: what users call, what is planned of it, and its record.

Reading order

    counts       rows, and whether all or any are true
    totals       totals and means
    edges        the least and the greatest value, the first and the last
    spreads      standard deviations and variances
    pairs        of two columns
    distinct     of the distinct values
    bits         bits of integers
    values       of all values: percentiles, lists, the user's own
    approximate  of sketches

Used by these
    of_bags      plans of what needs all values
    results      output columns from state columns
"""
