"""Z-sets: rows with weights. Every operator whose rows are retracted is made of these.

Reading order

    zset        a delta: rows that come and rows that go
    zset_table  a state table of rows with their weights: before a delta and after it
    epoch_rows  what an epoch adds and retracts, net
"""
