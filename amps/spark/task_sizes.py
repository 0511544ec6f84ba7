"""The size of a Spark task, in bytes of the log, without the option `split_bytes`.

A task has an overhead of 10 to 30 ms in the JVM and in Python, as much as reading 30,000 messages. So tasks
are large if there is much to read, but each core gets several, because their durations differ. Only the driver knows
the number of cores, and planning runs in a process that Spark starts for it. So `register` passes the number
in the environment of Spark's Python processes. Without it a fixed number is assumed.
"""

import os
from collections.abc import Mapping, MutableMapping

PARALLELISM = "AMPS_SPARK_PARALLELISM"
"""The environment variable with the number of tasks that run at the same time."""
PARALLELISM_ASSUMED = 32
PARALLELISM_DIGITS_MAX = 9
TASKS_PER_CORE = 4
TASK_BYTES_MIN = 128 << 20
TASK_BYTES_MAX = 512 << 20


def tell_parallelism(environment: MutableMapping[str, str], count: int) -> None:
    """Set the environment variable that planning reads, unless it is already set."""
    environment.setdefault(PARALLELISM, str(count))


def parallelism(environment: Mapping[str, str]) -> int:
    """Return how many tasks run at the same time, as far as that is known; at least 1."""
    told = environment.get(PARALLELISM, "")
    known = told.isascii() and told.isdigit() and len(told) <= PARALLELISM_DIGITS_MAX
    return max(int(told) if known else PARALLELISM_ASSUMED, 1)


def task_bytes(total: int, environment: Mapping[str, str] = os.environ) -> int:
    """Return the approximate number of bytes per task, for a read of `total` bytes."""
    share = total // (TASKS_PER_CORE * parallelism(environment))
    return min(max(share, TASK_BYTES_MIN), TASK_BYTES_MAX)
