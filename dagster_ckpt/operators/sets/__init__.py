"""Tables as sets and bags of whole rows, as SQL has them: nulls are equal, and so are NaN.

Reading order

    whole_rows     rows found by all their columns
    distinct       each row once
    set_operation  the rows of one input that the other has too, or has not
    union_all      the rows of both inputs
"""
