"""`make demo-kafka`: from Kafka into Kafka, Delta Lake, Iceberg and PostgreSQL, on real servers that get killed.

Reading order

    places      where everything is, in the environment
    servers     the broker and the database, started and killed
    streams     the code location: two streams from the topic, and a delivery of each into two destinations
    producer    the flights, day by day, into the topic
    victims     who can be killed, and when each is back
    proof       what a reader of each destination sees, compared with a batch computation
    story       what happens, in order
"""
