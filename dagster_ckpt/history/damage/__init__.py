"""Damaged objects: found, and reported with a way back.

Reading order

    verification    reads every byte that retained epochs and pins need
    damage_advice   which epoch does not need a damaged object, and how to go back to it
"""
