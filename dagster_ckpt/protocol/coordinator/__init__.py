"""The coordinator of epochs: a pure step machine, `step(state, event) -> (state, effects)`.

Reading order

    coordinator_events      what happens to the coordinator (events), and what it requests (effects)
    coordinator             the transitions
    checkpoint_coordinator  the coordinator that a driver uses and queries
"""
