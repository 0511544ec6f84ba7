"""Confirmations: a browser runs an operation only by a form that this interface has shown.

Each form contains a token for its operation and for the user to whom it was shown. A token is valid once and for a
limited time; pages of other sites can neither read nor make one. Unused tokens need no memory. Tokens are invalid in
another services process: a form that was shown before a restart has to be loaded again.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from urllib.parse import parse_qsl

from amps.server.admin.tree import Refused

TOKEN_LIFE_S = 3600
USED_MAX = 10_000
"""Maximum of operations done by forms within the life of a token, which bounds the memory for used tokens."""
FORM_BYTES_MAX = 65_536
FORM_TYPE = "application/x-www-form-urlencoded"

OPERATION_FIELD = "amps-operation"
TOKEN_FIELD = "amps-token"
CONFIRMED_FIELD = "amps-confirmed"
CONFIRMED = "yes"


class Confirmations:
    """The tokens of one interface."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._secret = secrets.token_bytes(32)
        self._used: dict[str, float] = {}
        """Used tokens with the end of their validity, in the order of use."""

    def token(self, path: str, identity: str) -> str:
        """Make a token. `path`: of the operation. `identity`: of the user of the form; empty if anonymous."""
        until_s = int(self._now_s()) + TOKEN_LIFE_S
        return self._signed(f"{until_s}.{secrets.token_hex(16)}", path, identity)

    def use(self, token: str, path: str, identity: str) -> None:
        """Accept a token once. Raises Refused."""
        now_s = self._now_s()
        said, _, _ = token.rpartition(".")
        known = hmac.compare_digest(
            self._signed(said, path, identity).encode(), token.encode("utf-8", "replace")
        )
        if not known:
            raise Refused(
                403, "the form is for another operation or user; load its page again and confirm again"
            )
        until_s = float(said.partition(".")[0])
        if token in self._used or until_s <= now_s:
            raise Refused(
                403, "the form was used already or is too old; load its page again and confirm again"
            )
        for used, used_until_s in list(self._used.items()):
            if used_until_s > now_s:
                break
            del self._used[used]
        if len(self._used) >= USED_MAX:
            raise Refused(503, "too many forms were used within an hour; try again later, or use a script")
        self._used[token] = until_s

    def _signed(self, said: str, path: str, identity: str) -> str:
        content = "\0".join((said, path, identity)).encode("utf-8", "surrogateescape")
        return f"{said}.{hmac.new(self._secret, content, hashlib.sha256).hexdigest()}"


def form_fields(body: bytes, fields_max: int) -> dict[str, str]:
    """The fields of a submitted form; of several with the same name the last. Raises Refused."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=fields_max, errors="surrogateescape"
        )
    except ValueError:
        raise Refused(400, f"the form cannot be read, or has more than {fields_max} fields") from None
    return dict(pairs)
