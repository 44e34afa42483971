"""The manifest chain of one stream: rules 1 to 5 of the protocol.

Reading order

    manifest_chain  find the newest manifest (by lists and leases), read one, create the next
    damaged_end     a chain whose newest manifest is damaged
    indexed_lists   long lists, kept in immutable index objects
"""
