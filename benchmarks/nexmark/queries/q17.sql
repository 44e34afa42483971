-- Statistics of each auction and day.
SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day,
  count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS low_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
  count(*) FILTER (WHERE price >= 1000000) AS high_bids,
  min(price) AS least, max(price) AS most, avg(price) AS average, sum(price) AS total
FROM bid GROUP BY auction, date_format(date_time, 'yyyy-MM-dd')
