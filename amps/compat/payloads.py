"""Builders and parsers of bodies with twins in camelCase; they accept messages of this package (client.md §12)."""

from typing import Any, Self

from amps.client import CompositeMessageBuilder as _CompositeMessageBuilder
from amps.client import CompositeMessageParser as _CompositeMessageParser
from amps.client import FIXBuilder as _FIXBuilder
from amps.client import FIXShredder as _FIXShredder
from amps.client import NVFIXBuilder as _NVFIXBuilder
from amps.client import NVFIXShredder as _NVFIXShredder
from amps.compat.messages import Message
from amps.compat.names import with_twins


def _body(body: Any) -> Any:
    return body.get_data_raw() if isinstance(body, Message) else body


@with_twins
class CompositeMessageBuilder(_CompositeMessageBuilder):
    """Joins the parts of a composite message."""

    def append(self, part: Any) -> Self:
        """Append a part."""
        return super().append(_body(part))


@with_twins
class CompositeMessageParser(_CompositeMessageParser):
    """Separates the parts of a composite message."""

    def parse(self, body: Any, parts: int | None = None) -> int:
        """Read a message or a body; return the number of parts. `parts` excludes an unparsed payload."""
        return super().parse(_body(body), parts)


@with_twins
class FIXBuilder(_FIXBuilder):
    """Builds a FIX body."""


@with_twins
class NVFIXBuilder(_NVFIXBuilder):
    """Builds an NVFIX body."""


@with_twins
class FIXShredder(_FIXShredder):
    """Reads FIX bodies."""

    def to_map(self, data: Any) -> dict[int, str]:
        """Return the values by tag."""
        return super().to_map(_body(data))


@with_twins
class NVFIXShredder(_NVFIXShredder):
    """Reads NVFIX bodies."""

    def to_map(self, data: Any) -> dict[str, str]:
        """Return the values by name."""
        return super().to_map(_body(data))
