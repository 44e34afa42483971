"""Which runs to merge and when, and the merge itself. `state` carries out what is chosen here.

Reading order

    compaction      the choice, and its cost model
    levels          the upper runs, and the bottom beneath them
    slices          where the next slice begins and ends
    merge           several runs into one: the newest delta of each key
    run_lists       the lists of runs after a write, a merge, or with another number of shards
"""
