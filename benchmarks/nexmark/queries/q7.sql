-- The highest bids of each ten seconds.
SELECT b.auction, b.bidder, b.price, b.date_time, b.extra
FROM bid b JOIN (
  SELECT max(price) AS highest, window.end AS ends FROM bid GROUP BY window(date_time, '10 seconds')
) m ON b.price = m.highest AND b.date_time >= m.ends - INTERVAL '10' SECOND AND b.date_time < m.ends
