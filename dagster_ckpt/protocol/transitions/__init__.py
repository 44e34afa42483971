"""From one manifest to the next.

Reading order

    edits             how one manifest becomes the next: value, edit, value
    epoch_statistics  what an epoch did, and the totals after it
    manifest_rules    the invariants, checked before every create
    well_formed       those of one manifest, whatever it follows
    compatibility     what changed between two pipelines, and whether state survives it
    later_columns     the names of state columns that begin later than their table
    renamed_columns   which columns the code has under new names
    step_changes      which steps of a changed pipeline keep their state, and how the stream goes on
    swap              what a stream becomes when another takes its place
    source_moves      which source continues from which position
    append_merges     which files of an append-only table to merge
    shard_layouts     whether runs show the same table under another number of shards
"""
