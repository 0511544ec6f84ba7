"""Functions of expressions that message-types.xml declares.

A function gets None, bool, int, float or bytes for each argument, and gives one of these, or a str. An argument that is
an array is its first element. A function that raises an exception gives NULL, which the server's log tells.
"""


def has_tag(tags: object, tag: object) -> bool:
    """Whether a tag is among tags with blanks between them."""
    return isinstance(tags, bytes) and tag in tags.split()
