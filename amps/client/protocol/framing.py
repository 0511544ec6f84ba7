"""Frames and headers for the client: the extension module, or its equivalent in Python.

`amps._core.wire.framing` is used if it can be imported. `AMPS_PURE_PYTHON=1` in the environment selects the Python
module, for tests and for diagnosis. Both have the same interface and pass the same tests.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amps._core.wire.framing import (
        FrameDecoder,
        FrameTooLarge,
        HeaderError,
        build_header,
        encode_frame,
        parse_header,
    )
elif os.environ.get("AMPS_PURE_PYTHON", "") not in ("", "0"):
    from amps.client.protocol.framing_python import (
        FrameDecoder,
        FrameTooLarge,
        HeaderError,
        build_header,
        encode_frame,
        parse_header,
    )
else:
    try:
        from amps._core.wire.framing import (
            FrameDecoder,
            FrameTooLarge,
            HeaderError,
            build_header,
            encode_frame,
            parse_header,
        )
    except ImportError:
        from amps.client.protocol.framing_python import (
            FrameDecoder,
            FrameTooLarge,
            HeaderError,
            build_header,
            encode_frame,
            parse_header,
        )

__all__ = [
    "FrameDecoder",
    "FrameTooLarge",
    "HeaderError",
    "build_header",
    "encode_frame",
    "parse_header",
]
