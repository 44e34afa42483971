"""Spark's functions as the engine's, and those that are made of plainer ones.

Reading order

    over_functions  Spark's functions over a partition as the engine's
    over_algebra    those that are made of plainer ones
    skipped_nulls   those with IGNORE NULLS
    collations      aggregates of text with a collation, made of aggregates without
    exact_texts     nested values as texts
"""
