"""moto's S3 server as a process of its own: prints its port, and ends when its standard input does."""

import logging
import sys

from moto.server import ThreadedMotoServer


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    sys.stdout.write(f"{server.get_host_and_port()[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()  # whoever started it has ended, by whatever means
    server.stop()


if __name__ == "__main__":
    main()
