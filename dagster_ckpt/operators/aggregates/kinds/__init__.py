"""The state of an aggregate for each group of rows: built from rows, merged, read.

Reading order

    accumulator  the protocol
    partials     what SQL may compute of rows before they reach their task
    counts       rows, rows with a value, the greatest event time
    sums         totals
    moments      mean and variance
    exact_sums   totals of doubles without rounding, from which rows can be retracted
    extremes     the least and the greatest value
    edge_rows    the first and the last row, as a struct
    settled      the first value, where rows are retracted
    sketches     approximate counts and quantiles
"""
