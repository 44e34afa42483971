-- The folders of an address.
SELECT auction, bidder, price, channel,
  split(url, '/')[3] AS first, split(url, '/')[4] AS second, split(url, '/')[5] AS third
FROM bid
