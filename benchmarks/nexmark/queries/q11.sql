-- How many bids a bidder made without a pause of ten seconds.
SELECT bidder, count(*) AS bids, session_window.start AS starts, session_window.end AS ends
FROM bid GROUP BY bidder, session_window(date_time, '10 seconds')
