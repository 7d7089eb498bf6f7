"""One part of a page, as its template draws it."""

from __future__ import annotations

from splatbatch.report.html import environment


def drawn(template: str, macro: str, *facts: object) -> str:
    """Return what a macro of a template makes of facts."""
    module = environment(is_html=True).get_template(f"{template}.html.j2").module
    return str(getattr(module, macro)(*facts))
