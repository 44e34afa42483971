-- Bids by the time at which they are processed: its meaning is that time alone, so no batch has the same result.
SELECT bidder, window(current_timestamp(), '10 seconds') AS w, count(*) AS bids
FROM bid GROUP BY bidder, window(current_timestamp(), '10 seconds')
