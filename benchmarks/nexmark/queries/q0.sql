-- Pass every bid through: what the engine costs without work.
SELECT auction, bidder, price, date_time, extra FROM bid
