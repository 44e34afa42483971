-- The first rows of a table that changes: an aircraft that falls behind leaves, and the next one takes its place.
CREATE MATERIALIZED VIEW top_aircraft (
  tailnum        STRING    COMMENT 'The number that is painted on it.',
  flown          BIGINT    COMMENT 'Departures from New York.',
  planned        BIGINT    COMMENT 'With those that were cancelled.',
  last_departure TIMESTAMP
)
COMMENT 'The three aircraft that left New York most often.'
TBLPROPERTIES ('dagster_ckpt.group' = 'flights_in_time')
AS
SELECT tailnum, flown, planned, last_departure
FROM busiest_aircraft
WHERE tailnum IS NOT NULL
ORDER BY flown DESC, tailnum LIMIT 3;
