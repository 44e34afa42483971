"""The manifest chain of one stream: rules 1 to 5 of the protocol.

Reading order

    manifest_chain  find the newest manifest, read one, create the next (a commit's create, and what a lost reply means)
    version_hints   hints of how far the chain goes: lists and leases
    damaged_end     a chain whose newest manifest is damaged
    indexed_lists   long lists, kept in immutable index objects
"""
