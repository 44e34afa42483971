"""Deliveries: a stream's table or changes, exactly once into a system outside of the store. No Spark, no Dagster.

Reading order.

    destination     the protocol of a destination: what each must guarantee, and what it receives
    schema_changes  how its columns differ from the delivered ones, and what is done about it (pure)
    judgement       how a delivery continues from the position that it finds in the destination (pure)
    delivery_rows   the rows between two positions of the stream
    delivery_run    a run: open, take the fence, then one transaction after another
"""
