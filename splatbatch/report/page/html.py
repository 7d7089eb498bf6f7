"""HTML that nobody can inject into: whatever was not made by `tag` is text, and is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Container, Iterable, Sequence
from html import escape

VOID = frozenset({"br", "img", "input", "link", "meta"})

Attribute = str | float | bool | None


class Html(str):
    """A string that is HTML already; every other string is text."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: Attribute) -> Html:
    """Return an element. `class_` stands for class, `data_x` for data-x; None and False leave an attribute out."""
    opened = f"<{name}{''.join(map(_attribute, attributes, attributes.values()))}>"
    return Html(opened if name in VOID else f"{opened}{join(children)}</{name}>")


def join(parts: Iterable[str]) -> Html:
    """Return parts one after the other, text among them escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(str(part)) for part in parts))


def table(
    headings: Iterable[str], rows: Iterable[Html], texts: Container[str], kind: str = "table", name: str = "Table"
) -> Html:
    """Return a table that the page's script sorts; columns under a heading of `texts` stand left, figures right.

    It scrolls by itself where it is too wide, also by keyboard: `name` says what that is about.
    """
    heads = [
        tag("th", tag("button", heading, type="button"), class_=None if heading in texts else "number", scope="col")
        if heading
        else tag("td")
        for heading in headings
    ]
    inner = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return tag("div", inner, class_=kind, tabindex=0, role="region", aria_label=name)


def number(value: float | None, form: str, unit: str = "") -> Html:
    """Return a cell of a table with a figure that it is sorted by; an empty one for None."""
    return tag("td", "" if value is None else f"{value:{form}}{unit}", class_="number", data_value=value)


def rows_of(cells: Iterable[Iterable[str]]) -> list[Html]:
    """Return the rows of a table whose cells are text."""
    return [tag("tr", *(tag("td", word) for word in row)) for row in cells]


def document(title: str, body: Html, style: str, scripts: Sequence[str], *, follows: bool = False) -> str:
    """Return a whole page that may load nothing at all and runs the first script.

    It may run the others, too: their text, and no other, may be put into a script element later. Such a script may
    start workers whose text it brings along; these are bound by the same policy. One that `follows` may ask the server
    that it came from, and nobody else.
    """
    workers = "worker-src blob:; " if len(scripts) > 1 else ""
    asks = "connect-src 'self'; " if follows else ""
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {' '.join(map(_digest, scripts))}; {workers}"
        f"img-src data:; {asks}base-uri 'none'; form-action 'none'"
    )
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(style)),
    ]
    page = tag("html", tag("head", *head), tag("body", body, tag("script", Html(scripts[0]))), lang="en")
    return f"<!doctype html>\n{page}\n"


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    key = name.removesuffix("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escape(str(value))}"'


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
