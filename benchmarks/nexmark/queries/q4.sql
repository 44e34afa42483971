-- The average closing price of the auctions of each category.
SELECT category, avg(final) AS average FROM (
  SELECT a.id, a.category, max(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category
) GROUP BY category
