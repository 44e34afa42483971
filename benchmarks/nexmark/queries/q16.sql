-- Statistics of each channel and day, and the minute of its newest bid.
SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS day, max(date_format(date_time, 'HH:mm')) AS minute,
  count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS low_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
  count(*) FILTER (WHERE price >= 1000000) AS high_bids,
  count(DISTINCT bidder) AS bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders,
  count(DISTINCT auction) AS auctions,
  count(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM bid GROUP BY channel, date_format(date_time, 'yyyy-MM-dd')
