"""Publish on a small file system until it is full; the tests run it in a mount namespace of its own.

Arguments: the URI, and a directory that a file system of 1 MiB is mounted on. It writes a line per step.
"""

import sys
from pathlib import Path

from amps.client import Client, FilePublishStore, StoreException


def main() -> None:
    uri, directory = sys.argv[1:]
    store = FilePublishStore(Path(directory) / "s", segment_bytes=2**17)
    client = Client("me", uri, publish_store=store).open()
    accepted = 0
    try:
        while True:
            accepted = client.publish("t", b"x" * 1000)
    except StoreException as error:
        print(accepted, error, flush=True)
    try:
        client.publish("t", b"x" * 1000)
    except StoreException:
        print("refused again", flush=True)
    sys.stdin.readline()  # the server acknowledges
    client.publish_flush()
    print(client.publish("t", b"again"), client.unpersisted_count, flush=True)
    client.close()
    store.close()


main()
