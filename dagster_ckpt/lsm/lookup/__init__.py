"""Keys found in runs, newest run first.

Reading order

    lookup        one row for each key, or all rows under the first columns of a key
    layer_search  the search in one layer of runs, used by both
"""
