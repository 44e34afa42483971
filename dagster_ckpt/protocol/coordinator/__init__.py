"""The coordinator of epochs: a pure step machine, `step(state, event) -> (state, effects)`.

Reading order

    coordinator_events      what the coordinator is told (events), and what it asks for (effects)
    coordinator             the transitions
    checkpoint_coordinator  the coordinator that a driver uses, and that can be asked
"""
