"""Which runs to merge and when, and the merge itself. `state` carries out what is chosen here.

Reading order

    compaction      the choice, and its cost model
    merge_choice    the merges to choose from
    levels          the upper runs, and the bottom beneath them
    depth           how many upper runs there are
    slices          where the next slice begins and ends
    merge           several runs into one: the newest delta of each key
    run_lists       the lists of runs after a write
    resharded_runs  the lists of runs for another number of shards
"""
