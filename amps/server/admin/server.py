"""The HTTP server of the administration interface (operations.md §4, §5).

Every request is a GET and gets one answer; then its connection is closed. The way of a request: the path is taken
apart, the credentials are checked, the resource is found, the permission is checked, and only then anything is read or
done. Requests that are refused are logged, and so is everything that is done.
"""

import asyncio
import logging
import socket
import time
import traceback
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from amps.config import AdminConfig, LoadedConfig
from amps.server.admin import formats
from amps.server.admin.access import Access
from amps.server.admin.administrator import administrator_node
from amps.server.admin.guards import Guards, shown_peer
from amps.server.admin.instance import instance_node
from amps.server.admin.queues import QueueView
from amps.server.admin.tree import Document, Group, Leaf, Operation, Place, Question, Refused, find, snapshot
from amps.server.eventlog import EventLog
from amps.server.services.actions.engine import Engine
from amps.server.services.core_requests import CoreRequests
from amps.server.transport.listeners import tls_context
from amps.server.write_statistics import WriteStatistics

HANDSHAKE_WAIT_S = 10.0
HEADER_BYTES_MAX = 8190
PARAMETERS_MAX = 200
PATH_DEPTH_MAX = 32
CLOSED_REPORT_S = 10.0
_TEXT = "text/plain"


class AdminServer:
    """The interface. Made in the services process."""

    def __init__(
        self,
        loaded: LoadedConfig,
        admin: AdminConfig,
        core: CoreRequests,
        writes: WriteStatistics,
        engine: Engine,
        log: EventLog,
        queues: QueueView | None = None,
    ) -> None:
        """`queues`: None if the instance has none."""
        self._admin = admin
        self._log = log
        self.access = access = Access(loaded.config, admin)
        self._root = Group(
            {
                "amps": Group(
                    {
                        "administrator": administrator_node(loaded.config, core, engine, access, log, queues),
                        "instance": instance_node(loaded, core, writes, queues),
                    }
                )
            }
        )
        self._servers: list[asyncio.AbstractServer] = []
        self._closed_count = 0
        self._closed_reported_s = 0.0
        self._port = admin.transport.port
        self._guards: Guards

    async def start(self, sockets: list[socket.socket]) -> None:
        """Serve on these listening sockets."""
        loop = asyncio.get_running_loop()
        quiet = logging.Logger("amps.server.admin")  # what matters goes to the event log
        quiet.addHandler(logging.NullHandler())
        self._web = web.Server(
            self._handle,
            access_log=None,
            logger=quiet,
            lingering_time=0,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
        )
        self._guards = Guards(self._web, self._connection_closed)
        tls = self._admin.transport.tls
        context = tls_context(tls) if tls is not None else None
        handshake_s = HANDSHAKE_WAIT_S if context is not None else None
        for listening in sockets:
            self._port = listening.getsockname()[1]
            self._servers.append(
                await loop.create_server(
                    self._guards.make, sock=listening, ssl=context, ssl_handshake_timeout=handshake_s
                )
            )

    async def stop(self) -> None:
        """Accept nobody, and close what there is."""
        for server in self._servers:
            server.close()
        await self._web.shutdown(0.2)

    def _connection_closed(self, address: str, reason: str) -> None:
        """Said at most every few seconds: it may happen very often."""
        self._closed_count += 1
        now_s = time.monotonic()
        if now_s - self._closed_reported_s >= CLOSED_REPORT_S:
            self._closed_reported_s = now_s
            self._log.log("19-0004", count=self._closed_count, address=address, reason=reason)
            self._closed_count = 0

    # --- requests -------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        self._guards.asked(transport)
        identity = ""
        try:
            if request.method != "GET":
                raise Refused(405, "every request is a GET")
            path, _, query = request.raw_path.partition("?")
            names = _names(path)
            if not names:
                answer = web.Response(status=302, headers={"Location": "/amps"})
            else:
                asked_path = "/" + "/".join(names)
                anonymous = self.access.is_anonymous(asked_path)
                identity = "" if anonymous else self.access.identify(request.headers)
                answer = await self._answer(request, names, identity, anonymous, _parameters(query))
        except Refused as refusal:
            answer = self._refusal(request, refusal, identity)
        except Exception as problem:
            self._log.log("01-0005", place="the administration interface", data=traceback.format_exc())
            answer = self._refusal(request, Refused(500, f"unexpected failure: {problem!r}"), identity)
        self._add_headers(request, answer)
        answer.force_close()
        self._guards.answered(transport)
        return answer

    async def _answer(
        self,
        request: web.BaseRequest,
        names: list[str],
        identity: str,
        anonymous: bool,
        parameters: Mapping[str, str],
    ) -> web.Response:
        candidates = ["/" + "/".join(way) for way, _ in _readings(names)]
        if not anonymous and not any(self.access.allows(identity, path) for path in candidates):
            raise Refused(403, "the permission is missing")
        place, suffix = await self._find(names)
        if place is None:
            raise Refused(404, "there is no such resource")

        def visible(path: str) -> bool:
            return self.access.is_anonymous(path) or (not anonymous and self.access.allows(identity, path))

        if not anonymous and not self.access.allows(identity, place.path):
            raise Refused(403, "the permission is missing")
        if isinstance(place.node, Operation):
            return await self._do(request, place, place.node, suffix, identity, parameters)
        if {"t0", "t1"} & set(parameters):
            raise Refused(400, "ranges of time need statistics over time, which are not supported yet")
        node = place.node
        if isinstance(node, Document):
            if suffix not in ("", "json"):
                raise Refused(400, "it can be had in its own form only")
            return _response(await node.make(), node.content_type)
        if isinstance(node, Question):
            value = node.answer(parameters, identity)
            node = Leaf(lambda: value)
            place = Place(node, place.names, place.parents)
        if suffix == "json":
            return _response(formats.as_json(await snapshot(place, visible)), "application/json")
        if suffix == "xml":
            return _response(formats.as_xml(await snapshot(place, visible)), "application/xml")
        if suffix == "csv":
            if not isinstance(node, Leaf):
                raise Refused(400, "only a single value can be had as CSV")
            return _response(formats.as_csv(node.read(), time.time()), "text/csv")
        if isinstance(node, Leaf):
            return _response(node.read(), node.content_type)
        return _response(formats.as_page(place.path, node), "text/html")

    async def _find(self, names: list[str]) -> tuple[Place | None, str]:
        """The resource, and the format. What has such a name is meant, before a suffix is taken for a format."""
        for way, suffix in _readings(names):
            place = await find(self._root, way)
            if place is not None:
                return place, suffix
        return None, ""

    async def _do(
        self,
        request: web.BaseRequest,
        place: Place,
        operation: Operation,
        suffix: str,
        identity: str,
        parameters: Mapping[str, str],
    ) -> web.Response:
        if suffix == "csv":
            raise Refused(400, "only a single value can be had as CSV")
        if self.access.comes_from_a_foreign_page(request.headers):
            raise Refused(
                403,
                "a page from elsewhere asks for it; let AccessControlAllowOrigin allow its origin if it may",
            )
        # Not given up when the client goes away: what was begun is done.
        await asyncio.shield(operation.run(parameters))
        self._log.log("19-0003", path=place.path, address=shown_peer(request.transport), user=identity)
        if suffix == "json":
            return _response('{"status":"success"}\n', "application/json")
        if suffix == "xml":
            return _response("<status>success</status>\n", "application/xml")
        return _response("success\n", _TEXT)

    def _refusal(self, request: web.BaseRequest, refusal: Refused, identity: str) -> web.Response:
        self._log.log(
            "19-0002",
            path=request.raw_path.partition("?")[0][:500],
            address=shown_peer(request.transport),
            user=identity,
            status=refusal.status,
            reason=refusal.reason,
        )
        answer = _response(f"{refusal.reason}\n", _TEXT, refusal.status)
        if refusal.status == 401:
            answer.headers["WWW-Authenticate"] = self.access.challenge
        elif refusal.status == 405:
            answer.headers["Allow"] = "GET"
        return answer

    def _add_headers(self, request: web.BaseRequest, answer: web.Response) -> None:
        origin = self.access.answered_origin(request.headers, self._own_origin)
        answer.headers["Access-Control-Allow-Origin"] = origin
        answer.headers["Server"] = "amps"
        answer.headers["Cache-Control"] = "no-store"
        answer.headers["X-Content-Type-Options"] = "nosniff"
        for name, value in self._admin.headers:
            answer.headers.add(name, value)

    @property
    def _own_origin(self) -> str:
        scheme = "https" if self._admin.transport.tls is not None else "http"
        return f"{scheme}://{socket.gethostname()}:{self._port}"


def _response(text: str, content_type: str, status: int = 200) -> web.Response:
    body = text.encode("utf-8", "backslashreplace")
    return web.Response(body=body, status=status, content_type=content_type, charset="utf-8")


def _names(path: str) -> list[str]:
    """The names in a path, each decoded by itself: a `/` in a name is sent as %2F. Raises Refused."""
    if path in ("", "/"):
        return []
    parts = path.removeprefix("/").removesuffix("/").split("/")
    if len(parts) > PATH_DEPTH_MAX:
        raise Refused(404, "there is no such resource")
    try:
        names = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        raise Refused(400, "the path is no valid text") from None
    if any(name in ("", ".", "..") for name in names):
        raise Refused(404, "there is no such resource")
    return names


def _readings(names: list[str]) -> list[tuple[list[str], str]]:
    """What a path may mean: a resource of that name, or one in a format that the suffix names."""
    stem, dot, suffix = names[-1].rpartition(".")
    if not dot or not stem or suffix not in formats.SUFFIXES:
        return [(names, "")]
    return [(names, ""), ([*names[:-1], stem], suffix)]


def _parameters(query: str) -> dict[str, str]:
    """The parameters of a request; of those with the same name the last. Raises Refused."""
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX, errors="surrogateescape"
        )
    except ValueError:
        raise Refused(400, f"there are more than {PARAMETERS_MAX} parameters") from None
    return dict(pairs)
