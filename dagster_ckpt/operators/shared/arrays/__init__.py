"""Arrow columns as numbers that numpy computes with, and back.

Reading order

    nulls          where a column has a value
    value_order    any orderable column as whole numbers
    lists          lists as columns of state
    exact_numbers  whole numbers of any size as columns of state
"""
