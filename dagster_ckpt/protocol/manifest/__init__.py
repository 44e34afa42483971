"""The manifest: the immutable object whose creation commits an epoch.

Reading order

    manifest    the values that a manifest is made of
    row_key     what identifies the rows of a stream's table
    references  every object that a manifest names
    codec       the fields of manifests, and of what index objects list, as JSON
    packing     their bytes
"""
