"""Functions over a partition, as by SQL's OVER.

Reading order

    over          the operator
    over_checks   what a function may be
    reach         which rows a change can touch
    region        these rows, before and after
    values        what each function returns
    elements      rows in their order, and the frame of each
    distances     frames by the distance between values
    exact_totals  the totals of frames
"""
