-- The ten highest bids on each auction.
SELECT * FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder) AS place FROM bid
) WHERE place <= 10
