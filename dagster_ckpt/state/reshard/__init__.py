"""Another number of shards for a stream's state.

Reading order

    reshard           opens the stream and commits it with the new number
    timeline_rewrite  rewrites timelines, which new run lists alone cannot split
"""
