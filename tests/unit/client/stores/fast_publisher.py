"""A publisher that is killed while it publishes at full speed: arguments are the port, the store's directory, a file.

The body of message n is `n:` and some bytes. After each publish has returned, its number is in the file, which is
mapped: that costs no system call.
"""

import mmap
import sys

from amps.client import Client, FilePublishStore
from tests.unit.client.stores.damage import body_of


def main() -> None:
    port, path, told = sys.argv[1:]
    with open(told, "r+b") as file:
        returned = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
    store = FilePublishStore(path, segment_bytes=2**17)
    client = Client("me", f"tcp://127.0.0.1:{port}/amps/json", publish_store=store).open()
    number = max(store.highest_unpersisted(), store.last_persisted())
    while True:
        body = body_of(number + 1)
        number = client.publish("t", body)
        returned[0] = number


main()
