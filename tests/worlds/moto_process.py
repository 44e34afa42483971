"""moto's S3 server as a process of its own: prints its port, and ends when its standard input does."""

import logging
import sys
import threading
from typing import Any

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer


def create_one_at_a_time() -> None:
    """moto looks whether an object is there, and then puts it: two of its threads may both find nothing."""
    put_object, lock = S3Response.put_object, threading.Lock()

    def alone(self: S3Response) -> Any:
        with lock:
            return put_object(self)

    S3Response.put_object = alone  # type: ignore[method-assign]


def send_request_ids() -> None:
    """S3 and its imitations send an id with each reply, which shows that a HEAD's 404 is theirs; moto sends none."""
    head_object = S3Response.head_object

    def with_id(self: S3Response, *arguments: Any, **named: Any) -> Any:
        status, headers, body = head_object(self, *arguments, **named)
        return status, {**headers, "x-amz-request-id": "4442587FB7D0A2F9"}, body

    S3Response.head_object = with_id  # type: ignore[method-assign]


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    create_one_at_a_time()
    send_request_ids()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    sys.stdout.write(f"{server.get_host_and_port()[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()  # whoever started it has ended, by whatever means
    server.stop()


if __name__ == "__main__":
    main()
