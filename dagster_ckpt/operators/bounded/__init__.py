"""What may be more than memory holds, a part at a time: rows that are due, keys to look up, rows that come out.

due             rows of timelines before a moment, by stretches of time, or of one moment by key
hash_ranges     ranges of key hashes that have about so many bytes of rows
lookups         rows of a table under many keys
at_once         how many questions have an answer of about so many bytes: learned from the answers before
pieces          small tables of output, put together to changes of about so many bytes
"""
