"""Applications that are killed at any moment: a publisher and a subscriber with stores in files.

    applications.py publish PORT DIRECTORY      publishes numbered messages until it is killed, or until SIGTERM
    applications.py subscribe PORT DIRECTORY    handles them: appends each number to DIRECTORY/handled

The publisher tells on its standard output, a line each, which number publish() has accepted. After SIGTERM it waits
until everything is persisted. Run as a program of its own, with the installed package alone.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from amps.client import EPOCH, FileBookmarkStore, FilePublishStore, FixedDelayStrategy, HAClient, Message

TOPIC = "load/applications"
PATIENCE_S = 120.0


def publish(uri: str, directory: Path, stopping: threading.Event) -> None:
    """Publish until told to stop. A message's number is its sequence, which goes on after the last one in the store."""
    store = FilePublishStore(directory / "published", segment_bytes=1 << 16, max_bytes=1 << 20)
    with HAClient(
        "application-publisher",
        uri,
        publish_store=store,
        delay_strategy=FixedDelayStrategy(0.02),
        timeout=PATIENCE_S,
    ) as client:
        while not stopping.is_set():
            for _ in range(20):
                number = store.next_number
                client.publish(TOPIC, b'{"n":%d}' % number)
                os.write(1, b"%d\n" % number)
            stopping.wait(0.001)
        client.publish_flush(timeout=PATIENCE_S)


def subscribe(uri: str, directory: Path, stopping: threading.Event) -> None:
    """Append the number of each message to the file, then discard the message."""
    output = os.open(directory / "handled", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(message: Message) -> None:
        os.write(output, b"%d\n" % message.json()["n"])
        message.discard()

    with HAClient(
        "application-subscriber",
        uri,
        bookmark_store=FileBookmarkStore(directory / "bookmarks"),
        delay_strategy=FixedDelayStrategy(0.02),
        timeout=PATIENCE_S,
    ) as client:
        client.bookmark_subscribe(TOPIC, EPOCH, sub_id="s", handler=handle)
        os.write(output, b"begins\n")
        stopping.wait()


def main() -> None:
    what, port, directory = sys.argv[1:]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    {"publish": publish, "subscribe": subscribe}[what](
        f"tcp://127.0.0.1:{port}/amps/json", Path(directory), stopping
    )


if __name__ == "__main__":
    main()
