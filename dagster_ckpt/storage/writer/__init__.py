"""The one writer of a stream.

Reading order

    stream_writer   from opening to end: commits manifests, fences, reopens, and notices that another took over
    opening         opening a stream, which fences all earlier writers
    drain_requests  drain requests: written by others, noticed by the writer
"""
