-- A join of two tables whose rows change with every departure. Both are streams in Python.
CREATE MATERIALIZED VIEW slow_routes (
  carrier       STRING COMMENT 'The airline, by its two letters.',
  origin        STRING COMMENT 'The airport of departure.',
  destination   STRING COMMENT 'The airport of arrival.',
  flights       BIGINT COMMENT 'Departures so far.',
  mean_delay    DOUBLE COMMENT 'Of this route, in minutes.',
  carrier_delay DOUBLE COMMENT 'Of all flights of the carrier, in minutes.'
)
COMMENT 'Where a carrier leaves ten minutes later than it does on average, of the routes flown fifty times or more.'
TBLPROPERTIES ('dagster_ckpt.group' = 'flights', 'dagster_ckpt.mode' = 'continuous')
AS
SELECT carrier, r.origin, r.destination, r.flights, r.mean_delay, c.mean_delay AS carrier_delay
FROM delay_by_route r JOIN delay_by_carrier c USING (carrier)
WHERE r.flights >= 50 AND r.mean_delay > c.mean_delay + 10;
