"""Which `amps` is measured: the installed one, or that of the checkout if none is installed.

`python -m perf` runs in a checkout, which comes first on the path then; but only where it was built in place its `amps`
can be imported at all. Processes that are started must find the same one.
"""

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def prefer_installed() -> None:
    """To be called before `amps` is imported."""
    here = [place for place in sys.path if Path(place or os.getcwd()).resolve() == CHECKOUT]
    sys.path[:] = [place for place in sys.path if place not in here] + here[:1]
    os.environ.update(places_of_children())


def places_of_children() -> dict[str, str]:
    """Variables of the environment with which Python finds the `amps` of this process, wherever it is started."""
    import amps

    found = str(Path(amps.__file__).parents[1])
    others = [
        place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and place != found
    ]
    return {"PYTHONPATH": os.pathsep.join([found, *others]), "PYTHONSAFEPATH": "1"}
