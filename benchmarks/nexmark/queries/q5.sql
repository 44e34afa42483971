-- The auctions with the most bids in each hopping window.
WITH counts AS (
  SELECT auction, window(date_time, '10 seconds', '2 seconds') AS w, count(*) AS bids
  FROM bid GROUP BY auction, window(date_time, '10 seconds', '2 seconds')
)
SELECT c.w.start AS starts, c.w.end AS ends, c.auction, c.bids
FROM counts c JOIN (SELECT w, max(bids) AS most FROM counts GROUP BY w) m ON c.w = m.w AND c.bids >= m.most
