"""Functions of expressions that a configuration of the tests loads."""


def twice(value: bytes | float | None) -> bytes | float | None:
    return None if value is None else value * 2


def half_of(value: int) -> int:
    """Fails for every value that is not an even number."""
    if value % 2:
        raise ValueError(f"{value} is odd")
    return value // 2
