"""Random queries in Spark's SQL, over random tables whose rows come, change and go.

tables   the tables, and what happens to their rows in each epoch
texts    the text of a query
collated the text of one that compares text with a collation
"""
