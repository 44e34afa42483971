-- Windows of event time: a row for each day and airport, which changes with every departure of that day.
CREATE MATERIALIZED VIEW punctuality_by_day (
  day        TIMESTAMP COMMENT 'Its beginning, in UTC.',
  origin     STRING    COMMENT 'The airport of departure.',
  flights    BIGINT    COMMENT 'Departures of that day.',
  on_time    BIGINT    COMMENT 'Those within a quarter of an hour after schedule.',
  hours_lost DOUBLE    COMMENT 'The delays of all others, together.'
)
COMMENT 'How punctual each airport was, day by day.'
TBLPROPERTIES ('dagster_ckpt.group' = 'flights_in_time')
AS
SELECT
  window.start AS day,
  origin,
  count(*) AS flights,
  count(CASE WHEN dep_delay <= 15 THEN 1 END) AS on_time,
  sum(CASE WHEN dep_delay > 15 THEN dep_delay ELSE 0 END) / 60 AS hours_lost
FROM departures
GROUP BY window(departed_at, '1 day'), origin;
