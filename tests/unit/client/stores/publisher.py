"""A publisher that is killed: arguments are the URI, the client's name, the store's directory, and a round.

It publishes `{"r": round, "i": 0}`, `{"r": round, "i": 1}` and so on, and tells each number after `publish` returned.
"""

import os
import sys

from amps.client import Client, FilePublishStore


def main() -> None:
    uri, name, path, turn = sys.argv[1:]
    store = FilePublishStore(path, segment_bytes=2**16)
    client = Client(name, uri, publish_store=store).open()
    at = 0
    while True:
        sequence = client.publish("t", b'{"r":%s,"i":%d}' % (turn.encode(), at))
        os.write(1, b"%d %d\n" % (at, sequence))
        at += 1


main()
