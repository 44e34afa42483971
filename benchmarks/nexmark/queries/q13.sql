-- Bids beside a table that does not stream.
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b JOIN side_input s ON b.auction % 100 = s.key
