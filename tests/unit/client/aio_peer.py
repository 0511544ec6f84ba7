"""A scripted server for the asyncio client, on the same event loop. It answers like a server unless told otherwise."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from tests.unit.client.peer import Frame, encode, split_frames

WAIT_S = 10.0
ACKNOWLEDGED = (
    "logon", "subscribe", "delta_subscribe", "sow", "sow_and_subscribe", "sow_and_delta_subscribe", "unsubscribe",
    "sow_delete", "flush",
)  # fmt: skip


class AsyncPeer:
    """A listening socket that serves one connection at a time.

    - answering: whether commands are acknowledged. reading: whether anything is read.
    - persisting: whether publishes with a number are acknowledged as persisted.
    """

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.payloads: list[bytes] = []
        """The frames as they were received, without their lengths."""
        self.answering = True
        self.persisting = True
        self.answer: Callable[[Frame], None] = self.acknowledge
        self.connections = 0
        self.logon_seq = 0
        self.logon_bookmark = "0|0|"
        self._news = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "AsyncPeer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.close()
        self.kill()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def uri(self) -> str:
        assert self._server is not None
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/amps/json"

    @property
    def connected(self) -> bool:
        return self._writer is not None and not self._writer.is_closing()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._writer = writer
        self.connections += 1
        try:
            while True:
                await self._reading.wait()
                head = await reader.readexactly(4)
                payload = await reader.readexactly(int.from_bytes(head, "big"))
                frame = split_frames(head + payload)[0]
                self.frames.append(frame)
                self.payloads.append(payload)
                self._news.set()
                if self.answering:
                    self.answer(frame)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._serving.discard(task)

    def acknowledge(self, frame: Frame) -> None:
        """Answer a frame as a server does that accepts everything."""
        command = frame["c"]
        if command == "logon":
            self.ack(
                frame,
                s=self.logon_seq,
                bm=self.logon_bookmark,
                client_name=frame["client_name"],
                version="9.9.9",
            )
        elif "publish" in command or (command == "sow_delete" and frame.get("bm")):
            if self.persisting and frame.get("s"):
                self.send({"c": "ack", "a": "persisted", "status": "success", "s": frame["s"]})
        elif command in ACKNOWLEDGED and frame.get("cid"):
            if command == "sow":
                self.send({"c": "group_begin", "query_id": frame["query_id"]})
                self.ack(frame)
                self.send({"c": "group_end", "query_id": frame["query_id"]})
                if "stats" in frame.acks:
                    self.ack(frame, "stats", matches=7)
                return
            for kind in sorted(frame.acks - {"persisted", "completed"}) or ["processed"]:
                self.ack(frame, kind)
            if command == "flush":
                for kind in frame.acks & {"persisted", "completed"}:
                    self.ack(frame, kind)

    def send(self, *headers: dict[str, Any], body: bytes = b"") -> None:
        """Write frames in one go; the last one gets the body."""
        if self.connected:
            assert self._writer is not None
            self._writer.write(
                b"".join(encode(header) for header in headers[:-1]) + encode(headers[-1], body)
            )

    def ack(self, frame: Frame, ack_type: str = "processed", status: str = "success", **fields: Any) -> None:
        self.send({"c": "ack", "cid": frame["cid"], "a": ack_type, "status": status, **fields})

    def publish(self, sids: str, body: bytes, **fields: Any) -> None:
        self.send({"c": "p", "t": "t", "sids": sids, **fields}, body=body)

    def read(self, going: bool) -> None:
        """Stop or continue reading: the socket's buffers fill up."""
        assert self._writer is not None
        transport = cast(asyncio.Transport, self._writer.transport)
        if going:
            transport.resume_reading()
            self._reading.set()
        else:
            self._reading.clear()
            transport.pause_reading()

    def kill(self) -> None:
        """Cut the connection."""
        if self._writer is not None:
            transport = cast(asyncio.Transport, self._writer.transport)
            transport.abort()

    async def expect(self, command: str, count: int = 1) -> Frame:
        """Wait for the count-th frame of a command; return it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                found = [frame for frame in self.frames if frame["c"] == command]
                if len(found) >= count:
                    return found[count - 1]
                self._news.clear()
                await self._news.wait()
