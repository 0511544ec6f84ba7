"""The HTTP server of the administration interface (operations.md §4, §5).

Every request gets one answer; then its connection is closed. A request is processed in this order: host and origin are
checked, the path is split, the credentials are checked, the resource is found, the permission is checked. Only then a
value is read or an operation run. Refused requests and all operations are logged.

Requests are GETs. Only browsers run operations by POST: with the form of a page, which the user has confirmed.
"""

import asyncio
import logging
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from amps.config import AdminConfig, LoadedConfig
from amps.server.admin import formats
from amps.server.admin.access import Access
from amps.server.admin.administrator import administrator_node
from amps.server.admin.confirmations import (
    CONFIRMED,
    CONFIRMED_FIELD,
    FORM_BYTES_MAX,
    FORM_TYPE,
    OPERATION_FIELD,
    TOKEN_FIELD,
    Confirmations,
    form_fields,
)
from amps.server.admin.guards import Guards, shown_peer
from amps.server.admin.instance import instance_node
from amps.server.admin.origins import Origins, Provenance
from amps.server.admin.pages import PAGE_HEADERS, confirmation_page, done_page, resource_page
from amps.server.admin.queues import QueueView
from amps.server.admin.replication import ReplicationView
from amps.server.admin.sow_topics import SowView
from amps.server.admin.tree import Document, Group, Leaf, Operation, Place, Question, Refused, find, snapshot
from amps.server.eventlog import EventLog
from amps.server.repeats import INTERVAL_S_MIN, Repeats, peer_of
from amps.server.services.actions.engine import Engine
from amps.server.services.core_requests import CoreRequests
from amps.server.services.transport_requests import TransportRequests
from amps.server.shared.listeners import tls_context
from amps.server.write_statistics import WriteStatistics

HANDSHAKE_WAIT_S = 10.0
HEADER_BYTES_MAX = 8190
PARAMETERS_MAX = 200
PATH_DEPTH_MAX = 32
FORM_WAIT_S = 10.0
_TEXT = "text/plain"
_HEADERS: Mapping[str, str] = {
    "Server": "amps",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    **PAGE_HEADERS,
}
"""Headers of every answer, unless the configuration has a header of that name."""
_FORM_FIELDS = (OPERATION_FIELD, TOKEN_FIELD, CONFIRMED_FIELD)
"""Fields of a form besides the parameters of its operation."""


class AdminServer:
    """The interface. It is made in the services process."""

    def __init__(
        self,
        loaded: LoadedConfig,
        admin: AdminConfig,
        core: CoreRequests,
        transports: TransportRequests,
        writes: WriteStatistics,
        engine: Engine,
        log: EventLog,
        queues: QueueView | None = None,
        now_s: Callable[[], float] = time.time,
        replication: ReplicationView | None = None,
        states: SowView | None = None,
    ) -> None:
        """`queues`, `replication`, `states` (SOW topics): None if the instance has none. `now_s`: the wall clock."""
        self._now_s = now_s
        self._admin = admin
        self._log = log
        self.access = access = Access(loaded.config, admin)
        self._root = Group(
            {
                "amps": Group(
                    {
                        "administrator": administrator_node(
                            loaded.config, core, engine, access, log, queues, replication
                        ),
                        "instance": instance_node(
                            loaded, core, transports, writes, queues, replication, states
                        ),
                    }
                )
            }
        )
        self._origins = Origins(admin)
        self._confirmations = Confirmations()
        self._refusals: Repeats[tuple[str, int]] = Repeats(
            lambda values: log.log("19-0002", **values),
            lambda count, seconds, values: log.log(
                "19-0005", count=count, seconds=f"{seconds:.0f}", **values
            ),
        )
        self._closed: Repeats[tuple[str, str]] = Repeats(
            lambda values: log.log("19-0004", count=1, **values),
            lambda count, seconds, values: log.log("19-0004", count=count, **values),
        )
        self._servers: list[asyncio.AbstractServer] = []
        self._port = admin.transport.port
        self._guards: Guards
        self._look_around_timer: asyncio.TimerHandle | None = None
        self._learning: asyncio.Task[None] | None = None

    async def start(self, sockets: list[socket.socket]) -> None:
        """Begin to serve on these listening sockets."""
        loop = asyncio.get_running_loop()
        quiet = logging.Logger("amps.server.admin")  # important events go to the event log
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
        # Not awaited: a name service may not answer.
        self._learning = asyncio.create_task(self._origins.learn_full_name())
        self._look_around()

    def _look_around(self) -> None:
        self._refusals.look_around()
        self._closed.look_around()
        self._look_around_timer = asyncio.get_running_loop().call_later(INTERVAL_S_MIN, self._look_around)

    async def stop(self) -> None:
        """Accept no more connections, and close the existing ones."""
        for server in self._servers:
            server.close()
        await self._web.shutdown(0.2)
        if self._learning is not None:
            self._learning.cancel()
        if self._look_around_timer is not None:
            self._look_around_timer.cancel()
        self._refusals.end()
        self._closed.end()

    def _connection_closed(self, address: str, reason: str) -> None:
        self._closed.happened((peer_of(address), reason), address=address, reason=reason)

    # --- requests -------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        self._guards.asked(transport)
        identity = ""
        asked: Provenance | None = None
        try:
            asked = self._origins.provenance(request.version, request.raw_path, request.headers)
            if not self._origins.may_read(asked):
                raise Refused(
                    403,
                    "the request comes from a page of another origin; to permit that, let AccessControlAllowOrigin "
                    "in Admin match it, or make it a TrustedOrigin",
                )
            path, _, query = asked.target.partition("?")
            names, parameters = _names(path), _parameters(query)
            form: dict[str, str] | None = None
            if request.method == "POST":
                form = await _received_form(request, asked)
                names.append(form.get(OPERATION_FIELD, ""))
                parameters |= {name: value for name, value in form.items() if name not in _FORM_FIELDS}
            elif request.method != "GET":
                raise Refused(405, "requests must be GETs, except for forms of this interface's pages")
            if not names:
                answer = web.Response(status=302, headers={"Location": "/amps"})
            else:
                asked_path = "/" + "/".join(names)
                anonymous = self.access.is_anonymous(asked_path)
                identity = "" if anonymous else self.access.identify(request.headers)
                answer = await self._answer(request, asked, names, identity, anonymous, parameters, form)
        except Refused as refusal:
            answer = self._refusal(request, refusal, identity)
        except Exception as problem:
            self._log.log("01-0005", place="the administration interface", data=traceback.format_exc())
            answer = self._refusal(request, Refused(500, f"unexpected failure: {problem!r}"), identity)
        self._add_headers(asked, answer)
        answer.force_close()
        self._guards.answered(transport)
        return answer

    async def _answer(
        self,
        request: web.BaseRequest,
        asked: Provenance,
        names: list[str],
        identity: str,
        anonymous: bool,
        parameters: Mapping[str, str],
        form: Mapping[str, str] | None,
    ) -> web.Response:
        candidates = ["/" + "/".join(way) for way, _ in _readings(names)]
        if not anonymous and not any(self.access.allows(identity, path) for path in candidates):
            raise Refused(403, "the permission is missing")
        place, asked_names, suffix = await self._find(names)
        if place is None:
            raise Refused(404, "there is no such resource")

        def visible(path: str) -> bool:
            return self.access.is_anonymous(path) or (not anonymous and self.access.allows(identity, path))

        # A resource with another name besides its id needs the permission for both.
        asked_path = "/" + "/".join(asked_names)
        if not anonymous and not all(self.access.allows(identity, path) for path in {asked_path, place.path}):
            raise Refused(403, "the permission is missing")
        if isinstance(place.node, Operation):
            if suffix == "csv":
                raise Refused(400, "only a single value is available as CSV")
            if form is not None or asked.browser_sign is not None:
                return await self._do_for_browser(request, asked, place, identity, parameters, form)
            return await self._do_for_script(request, place, suffix, identity, parameters)
        if form is not None:
            raise Refused(404, "there is no such operation")
        if {"t0", "t1"} & set(parameters):
            raise Refused(400, "ranges of time need statistics over time, which are not supported yet")
        node = place.node
        if isinstance(node, Document):
            if suffix not in ("", "json"):
                raise Refused(400, "this resource is available in its own format only")
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
                raise Refused(400, "only a single value is available as CSV")
            return _response(formats.as_csv(node.read(), self._now_s()), "text/csv")
        if isinstance(node, Leaf):
            return _response(node.read(), node.content_type)

        def token(path: str) -> str:
            return self._confirmations.token(path, "" if self.access.is_anonymous(path) else identity)

        return _response(resource_page(place.path, node, visible, token), "text/html")

    async def _find(self, names: list[str]) -> tuple[Place | None, list[str], str]:
        """The resource, the names in the request, and the format. A suffix is taken for a format only if there is no
        resource of the full name.
        """
        for way, suffix in _readings(names):
            place = await find(self._root, way)
            if place is not None:
                return place, way, suffix
        return None, names, ""

    async def _do_for_script(
        self,
        request: web.BaseRequest,
        place: Place,
        suffix: str,
        identity: str,
        parameters: Mapping[str, str],
    ) -> web.Response:
        await self._do(request, place, identity, parameters)
        if suffix == "json":
            return _response('{"status":"success"}\n', "application/json")
        if suffix == "xml":
            return _response("<status>success</status>\n", "application/xml")
        return _response("success\n", _TEXT)

    async def _do_for_browser(
        self,
        request: web.BaseRequest,
        asked: Provenance,
        place: Place,
        identity: str,
        parameters: Mapping[str, str],
        form: Mapping[str, str] | None,
    ) -> web.Response:
        """Run the operation only for a form. A GET is answered with a form."""
        *page_names, name = place.names
        page_path = "/" + "/".join(page_names)
        if asked.foreign_page is not None:
            raise Refused(
                403,
                f"the request comes from a page of another site; open {page_path} at this interface and confirm it "
                "there",
            )
        if form is None:
            assert isinstance(place.node, Operation)
            self._log_refusal(
                request,
                identity,
                Refused(
                    403,
                    f"the header {asked.browser_sign} indicates a browser, which has to confirm it on {page_path}; "
                    "a script must omit that header or send another value",
                ),
            )
            token = self._confirmations.token(place.path, identity)
            page = confirmation_page(page_path, name, place.node, parameters, token)
            return _response(page, "text/html", 403)
        if form.get(CONFIRMED_FIELD) != CONFIRMED:
            raise Refused(
                403, f"the operation is not confirmed; open {page_path}, tick yes, and send the form"
            )
        self._confirmations.use(form.get(TOKEN_FIELD, ""), place.path, identity)
        await self._do(request, place, identity, parameters)
        return _response(done_page(page_path, name), "text/html")

    async def _do(
        self, request: web.BaseRequest, place: Place, identity: str, parameters: Mapping[str, str]
    ) -> None:
        assert isinstance(place.node, Operation)
        # Not cancelled when the client disconnects: an operation that was begun is completed.
        await asyncio.shield(place.node.run(parameters))
        self._log.log("19-0003", path=place.path, address=shown_peer(request.transport), user=identity)

    def _refusal(self, request: web.BaseRequest, refusal: Refused, identity: str) -> web.Response:
        self._log_refusal(request, identity, refusal)
        answer = _response(f"{refusal.reason}\n", _TEXT, refusal.status)
        if refusal.status == 401:
            answer.headers["WWW-Authenticate"] = self.access.challenge
        elif refusal.status == 405:
            answer.headers["Allow"] = "GET"
        return answer

    def _log_refusal(self, request: web.BaseRequest, identity: str, refusal: Refused) -> None:
        address = shown_peer(request.transport)
        self._refusals.happened(
            (peer_of(address), refusal.status),
            path=request.raw_path.partition("?")[0][:500],
            address=address,
            user=identity,
            status=refusal.status,
            reason=refusal.reason,
        )

    def _add_headers(self, asked: Provenance | None, answer: web.Response) -> None:
        headers = dict(_HEADERS)
        origin = self._origins.answered_origin(asked, self._own_origin)
        if origin is not None:
            headers["Access-Control-Allow-Origin"] = origin
        configured = {name.lower() for name, _ in self._admin.headers}
        for name, value in headers.items():
            if name.lower() not in configured:
                answer.headers[name] = value
        for name, value in self._admin.headers:
            answer.headers.add(name, value)

    @property
    def _own_origin(self) -> str:
        scheme = "https" if self._admin.transport.tls is not None else "http"
        return f"{scheme}://{socket.gethostname()}:{self._port}"


async def _received_form(request: web.BaseRequest, asked: Provenance) -> dict[str, str]:
    """The form in a POST. Raises Refused."""
    if request.content_type != FORM_TYPE:
        raise Refused(405, "requests must be GETs, except for forms of this interface's pages")
    if asked.foreign_page is not None:
        raise Refused(
            403, "the form comes from a page of another site; open this interface itself and confirm it there"
        )
    body = b""
    try:
        async with asyncio.timeout(FORM_WAIT_S):
            while len(body) <= FORM_BYTES_MAX and (part := await request.content.readany()):
                body += part
    except TimeoutError:
        raise Refused(408, "the form did not arrive in time") from None
    if len(body) > FORM_BYTES_MAX:
        raise Refused(413, f"a form has {FORM_BYTES_MAX} bytes at most")
    return form_fields(body, PARAMETERS_MAX + len(_FORM_FIELDS))


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
    """The possible meanings of a path: a resource of that name, or one in the format named by the suffix."""
    stem, dot, suffix = names[-1].rpartition(".")
    if not dot or not stem or suffix not in formats.SUFFIXES:
        return [(names, "")]
    return [(names, ""), ([*names[:-1], stem], suffix)]


def _parameters(query: str) -> dict[str, str]:
    """The parameters of a request; of several with the same name the last. Raises Refused."""
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX, errors="surrogateescape"
        )
    except ValueError:
        raise Refused(400, f"there are more than {PARAMETERS_MAX} parameters") from None
    return dict(pairs)
