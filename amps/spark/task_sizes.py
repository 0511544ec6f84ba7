"""How much of a log one task of Spark reads, where the option `split_bytes` does not say.

A task costs 10 to 30 ms besides what it reads, in the JVM and in Python, as much as reading 30,000 messages. So tasks
are large where there is much to read, but each core gets several, for they do not all take as long. How many cores
there are only the driver knows, and plans are made in a process that Spark starts for it: `register` has the number put
among the environment variables of Spark's Python processes. Without it a cluster of some size is assumed.
"""

import os
from collections.abc import Mapping, MutableMapping

PARALLELISM = "AMPS_SPARK_PARALLELISM"
"""The environment variable: tasks that run at the same time."""
PARALLELISM_ASSUMED = 32
PARALLELISM_DIGITS_MAX = 9
TASKS_PER_CORE = 4
TASK_BYTES_MIN = 128 << 20
TASK_BYTES_MAX = 512 << 20


def tell_parallelism(environment: MutableMapping[str, str], parallelism: int) -> None:
    """Put it where plans find it; what somebody has put there stays."""
    environment.setdefault(PARALLELISM, str(parallelism))


def task_bytes(total: int, environment: Mapping[str, str] = os.environ) -> int:
    """About how much each task is to read, of so many bytes."""
    told = environment.get(PARALLELISM, "")
    known = told.isascii() and told.isdigit() and len(told) <= PARALLELISM_DIGITS_MAX
    parallelism = int(told) if known else PARALLELISM_ASSUMED
    share = total // (TASKS_PER_CORE * max(parallelism, 1))
    return min(max(share, TASK_BYTES_MIN), TASK_BYTES_MAX)
