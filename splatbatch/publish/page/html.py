"""HTML that is safe from injection: all that `tag` did not make is text, and is escaped."""

from __future__ import annotations

from html import escape

VOID = frozenset({"br", "img", "input", "link", "meta"})

Attribute = str | float | bool | None


class Html(str):
    """A string that is HTML already; every other string is text."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: Attribute) -> Html:
    """Return an element. `class_` stands for class, `data_x` for data-x; None and False leave an attribute out."""
    opened = f"<{name}{''.join(map(_attribute, attributes, attributes.values()))}>"
    inner = "".join(part if isinstance(part, Html) else escape(str(part)) for part in children)
    return Html(opened if name in VOID else f"{opened}{inner}</{name}>")


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    key = name.removesuffix("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escape(str(value))}"'
