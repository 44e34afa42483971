-- Columns computed by CASE and by a function of Python.
SELECT auction, bidder, 0.908 * price AS price,
  CASE
    WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'day'
    WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'night'
    ELSE 'between'
  END AS part_of_day,
  date_time, extra, count_char(extra, 'c') AS c_count
FROM bid WHERE 0.908 * price > 1000 AND 0.908 * price < 50000
