"""HTML pages (operations.md §5.2): links to the resources below, and a form for each operation.

No page links to an operation, and no form has an operation's path as its target: a client that follows all links, and
sends all forms as GETs, runs no operation. A form is sent to the page that has the operations, and names the operation.
"""

from collections.abc import Callable, Mapping
from html import escape
from urllib.parse import quote

from amps.server.admin.confirmations import CONFIRMED, CONFIRMED_FIELD, OPERATION_FIELD, TOKEN_FIELD
from amps.server.admin.tree import Node, Operation, Visible, children_of

PAGE_HEADERS: Mapping[str, str] = {
    # No other site may show these pages in a frame, and so lead clicks to their forms.
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    # Forms send their origin; other sites do not receive the paths that are read here.
    "Referrer-Policy": "same-origin",
}


def resource_page(path: str, node: Node, visible: Visible, token: Callable[[str], str]) -> str:
    """A page with links to the resources below, and forms for the permitted operations.

    `path`: as in permissions. `token(path)`: the token for the form of the operation with this path.
    """
    base = linked(path)
    items = []
    for name, child in children_of(node).items():
        if isinstance(child, Operation):
            below = f"{path}/{name}"
            if visible(below):
                items.append(_form(path, name, child, {}, token(below)))
        else:
            link = escape(f"{base}/{quote(name, safe='')}")
            items.append(f'<a href="{link}">{escape(name)}</a>')
    return _page(path, "<ul>\n" + "\n".join(f"<li>{item}</li>" for item in items) + "\n</ul>")


def confirmation_page(
    page_path: str, name: str, operation: Operation, values: Mapping[str, str], token: str
) -> str:
    """A page that requests the confirmation of an operation with parameters. `page_path`: the page of the operation."""
    form = _form(page_path, name, operation, values, token)
    return _page(f"{page_path}/{name}", f"<p>Nothing was done. A browser has to confirm this:</p>\n{form}")


def done_page(page_path: str, name: str) -> str:
    """A page that reports that an operation was done."""
    link = f'<a href="{escape(linked(page_path))}">{escape(page_path)}</a>'
    return _page(f"{page_path}/{name}", f"<p>success</p>\n<p>{link}</p>")


def linked(path: str) -> str:
    """A path in the form of links."""
    return "/".join(quote(name, safe="") for name in path.split("/"))


def _form(page_path: str, name: str, operation: Operation, values: Mapping[str, str], token: str) -> str:
    fields = [
        f'<label>{escape(parameter)} <input name="{escape(parameter)}" value="{escape(values.get(parameter, ""))}" '
        "required></label>"
        for parameter in operation.parameters
    ]
    fields += [
        _hidden(parameter, value)
        for parameter, value in values.items()
        if parameter not in operation.parameters
    ]
    note = f" {escape(operation.description)}" if operation.description else ""
    return (
        f'<form method="post" action="{escape(linked(page_path))}">{_hidden(TOKEN_FIELD, token)}'
        f"{_hidden(OPERATION_FIELD, name)}{''.join(fields)}"
        f'<label><input type="checkbox" name="{CONFIRMED_FIELD}" value="{CONFIRMED}" required>yes</label> '
        f'<input type="submit" value="{escape(name)}">{note}</form>'
    )


def _hidden(name: str, value: str) -> str:
    return f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'


def _page(title: str, content: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{escape(title)}</title></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{content}\n</body></html>\n"
    )
