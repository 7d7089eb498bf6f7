"""HTML and Markdown from templates, safe from injection: all that facts hold is text, and is escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from splatbatch.failures.causes import in_words, title
from splatbatch.output.records.metrics import deciding, spell_figures
from splatbatch.output.records.quality import grade_in_words
from splatbatch.report.comparison import (
    changed_in,
    deciding_in,
    headings_of,
    is_best,
    is_best_of,
    setting_charts,
    spelt,
)
from splatbatch.report.inspection import cell_map, certificate_of, falloff_curve, holdout_map
from splatbatch.report.pictures import FULL_ERROR, error_colors
from splatbatch.report.quality import FIGURES, figure_row
from splatbatch.report.scene import SEAM_FIGURES, seam_figures
from splatbatch.report.units import SIGNS, amount, duration, figure, photographs
from splatbatch.report.workers import ran_in_words
from splatbatch.scene.patches import list_names
from splatbatch.tasks.status import STATES
from splatbatch.text import assignments, moment, one_line, plain_text, plural

PACKAGE = "splatbatch.report"
SPECIAL = re.compile(r"[\\`*\[|]")
GRADES = {"even": "even", "slight": "slight", "step": "a step", "unknown": ""}
IN_WORDS = (
    amount, assignments, cell_map, certificate_of, changed_in, deciding, deciding_in, duration, falloff_curve, figure,
    grade_in_words, headings_of, holdout_map, in_words, is_best, is_best_of, list_names, moment, one_line, photographs,
    plain_text, plural, ran_in_words, seam_figures, setting_charts, spell_figures, spelt, title,
)  # fmt: skip
"""What templates call to say facts, or to draw them."""


def render(name: str, **facts: Any) -> str:
    """Return what a template makes of facts: HTML of *.html.j2, else Markdown."""
    return environment(is_html=name.endswith(".html.j2")).get_template(name).render(facts)


@cache
def environment(*, is_html: bool) -> Environment:
    """Return what fills the report's templates in."""
    made = templates_of(PACKAGE, _html if is_html else markdown)
    made.globals |= {one.__name__: one for one in (*IN_WORDS, fence_of)} | {
        "SIGNS": SIGNS,
        "STATES": STATES,
        "GRADES": GRADES,
        "SEAM_FIGURES": SEAM_FIGURES,
        "FIGURES": FIGURES,
        "ERROR_COLORS": error_colors(),
        "FULL_ERROR": f"{255 * FULL_ERROR:.0f}",
    }
    made.filters |= {"figure_row": figure_row, "last_name": _last_name, "spell_json": _spell_json}
    return made


def _html(value: object) -> object:
    return "" if value is None else value


def templates_of(package: str, spell: Callable[[object], object] = _html) -> Environment:
    """Return what fills the templates of a package in: what facts hold is text and is escaped, None is nothing."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        finalize=spell,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def fence_of(quoted: Sequence[str]) -> str:
    """Return what stands above and below lines of a log, so that nothing in them can end the block."""
    longest = max(map(len, re.findall("`+", "\n".join(quoted))), default=0)
    return "`" * max(3, longest + 1)


def _last_name(setting: str) -> str:
    return setting.rpartition(".")[2]


def _spell_json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True, default=str)


def markdown(value: object) -> Markup:
    """Return text that others wrote so that Markdown reads text in it: no HTML, table, link, emphasis or line end."""
    if isinstance(value, Markup):
        return value
    words = SPECIAL.sub(r"\\\g<0>", one_line("" if value is None else str(value)))
    return Markup(words.replace("&", "&amp;").replace("<", "&lt;"))  # noqa: S704 - it is escaped here


@cache
def asset(name: str, package: str = PACKAGE) -> str:
    """Return the text of a style or a script that lies beside the templates of a package."""
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


def policy(style: str, scripts: Sequence[str], *, follows: bool) -> str:
    """Return what a page may do: it may load nothing at all, and runs the first script.

    It may run the others, too: their text, and no other, may be put into a script element later. Such a script may
    start workers whose text it brings along; these are bound by the same policy. One that `follows` may ask the server
    that it came from alone.
    """
    workers = "worker-src blob:; " if len(scripts) > 1 else ""
    asks = "connect-src 'self'; " if follows else ""
    return (
        f"default-src 'none'; style-src {digest(style)}; script-src {' '.join(map(digest, scripts))}; {workers}"
        f"img-src data:; {asks}base-uri 'none'; form-action 'none'"
    )


def digest(text: str) -> str:
    """Return the hash of a style or a script, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
