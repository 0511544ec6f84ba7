"""The work that is done once per message: the extension module, or its equivalent in Python.

`amps._core.client.traffic` is used if it can be imported. `AMPS_PURE_PYTHON=1` in the environment selects the Python
module, for tests and for diagnosis. Both have the same interface and pass the same tests.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amps._core.client.traffic import (
        AckBatch,
        Arrivals,
        FrameLog,
        FrameReader,
        NumberedFrames,
        Outbox,
        ReceivedMessage,
        SegmentWriter,
    )

    COMPILED: bool
elif os.environ.get("AMPS_PURE_PYTHON", "") not in ("", "0"):
    from amps.client.protocol.arrivals_python import Arrivals
    from amps.client.protocol.traffic_python import (
        AckBatch,
        FrameLog,
        FrameReader,
        NumberedFrames,
        Outbox,
        ReceivedMessage,
        SegmentWriter,
    )

    COMPILED = False
else:
    try:
        from amps._core.client.traffic import (
            AckBatch,
            Arrivals,
            FrameLog,
            FrameReader,
            NumberedFrames,
            Outbox,
            ReceivedMessage,
            SegmentWriter,
        )

        COMPILED = True
    except ImportError:
        from amps.client.protocol.arrivals_python import Arrivals
        from amps.client.protocol.traffic_python import (
            AckBatch,
            FrameLog,
            FrameReader,
            NumberedFrames,
            Outbox,
            ReceivedMessage,
            SegmentWriter,
        )

        COMPILED = False

__all__ = [
    "COMPILED",
    "AckBatch",
    "Arrivals",
    "FrameLog",
    "FrameReader",
    "NumberedFrames",
    "Outbox",
    "ReceivedMessage",
    "SegmentWriter",
]
