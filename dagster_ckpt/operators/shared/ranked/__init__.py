"""Rows of each key in an order: the best of them, or the rows beside a row.

Reading order

    order_by      an order of rows, and how users spell it
    best_rows     the best rows of each key, whatever is added or retracted
    rank_tree     how they are found: the tree below
    ordered_tree  all rows in their order
"""
