"""The best rows of each key.

Reading order

    top         the operator
    row_places  ROW_NUMBER: exactly so many rows
    row_ranks   RANK and DENSE_RANK: rows that tie have one rank
"""
