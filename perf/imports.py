"""The choice of the measured `amps`: the installed package, or that of the checkout if none is installed.

`python -m perf` runs in a checkout, which is then first on the path. But the `amps` of a checkout can be imported only
if it was built in place. Child processes must find the same `amps`.
"""

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def prefer_installed() -> None:
    """Put the checkout last on the path. Call it before `amps` is imported."""
    here = [place for place in sys.path if Path(place or os.getcwd()).resolve() == CHECKOUT]
    sys.path[:] = [place for place in sys.path if place not in here] + here[:1]
    os.environ.update(places_of_children())


def places_of_children() -> dict[str, str]:
    """Environment variables with which a child process finds the `amps` of this process, from any directory."""
    import amps

    found = str(Path(amps.__file__).parents[1])
    others = [
        place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and place != found
    ]
    return {"PYTHONPATH": os.pathsep.join([found, *others]), "PYTHONSAFEPATH": "1"}
