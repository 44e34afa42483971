"""Deliveries: a stream's table or changes, exactly once into a system outside of the store. Neither Spark nor Dagster.

Reading order.

    destination     the protocol of a destination: what each must promise, and what it is given
    schema_changes  how its columns differ from the delivered ones, and what is done about it (pure)
    judgement       how a delivery goes on from the position that it finds in the destination (pure)
    delivery_rows   the rows between two positions of the stream
    delivery_run    a run: open, take the fence, then one transaction after another
"""
