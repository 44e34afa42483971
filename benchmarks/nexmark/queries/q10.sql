-- Bids with the day and the minute by which files of them would be partitioned.
SELECT auction, bidder, price, date_time, extra,
  date_format(date_time, 'yyyy-MM-dd') AS day, date_format(date_time, 'HH:mm') AS minute
FROM bid
