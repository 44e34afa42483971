-- Of each seller the average closing price of this auction and the ten before.
SELECT seller, id, avg(price) OVER (
    PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
  ) AS average
FROM (
  SELECT a.id, a.seller, b.price, b.date_time,
    row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) AS place
  FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
) WHERE place = 1
