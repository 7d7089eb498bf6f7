"""Renders HTML and Markdown from templates; values are escaped as text, unless a template marks them as safe."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
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
from splatbatch.report.pictures import FULL_ERROR, error_color
from splatbatch.report.quality import FIGURES, figure_row
from splatbatch.report.scene import SEAM_FIGURES, seam_figures
from splatbatch.report.units import SIGNS, amount, duration, figure, photographs
from splatbatch.report.workers import ran_in_words
from splatbatch.scene.patches import list_names
from splatbatch.tasks.status import STATES
from splatbatch.text import assignments, moment, one_line, plain_text, plural

PACKAGE = "splatbatch.report"
NUM_SWATCHES = 16
"""Number of steps from the first to the last colour in the legend of error maps."""
SPECIAL = re.compile(r"[\\`*\[|]")
GRADES = {"even": "even", "slight": "slight", "step": "a step", "unknown": ""}
IN_WORDS = (
    amount, assignments, cell_map, certificate_of, changed_in, deciding, deciding_in, duration, falloff_curve, figure,
    grade_in_words, headings_of, holdout_map, in_words, is_best, is_best_of, list_names, moment, one_line, photographs,
    plain_text, plural, ran_in_words, seam_figures, setting_charts, spell_figures, spelt, title,
)  # fmt: skip
"""Functions that templates may call to format or draw facts."""


def render(name: str, **facts: Any) -> str:
    """Return a template of the report filled in: HTML if its name ends in .html.j2, otherwise Markdown.

    Args:
        name: file name of the template, as "page.html.j2".
        facts: values by the name that the template uses; escaped unless the template marks them as safe.

    Raises:
        jinja2.TemplateNotFound: there is no such template.
        jinja2.UndefinedError: the template uses a name that `facts` lacks.
    """
    return environment(is_html=name.endswith(".html.j2")).get_template(name).render(facts)


@cache
def environment(*, is_html: bool) -> Environment:
    """Return the Jinja environment of the report's templates; repeated calls return the same one.

    Args:
        is_html: whether values are escaped for HTML; otherwise for Markdown.
    """
    made = templates_of(PACKAGE, _html if is_html else markdown)
    made.globals |= {one.__name__: one for one in (*IN_WORDS, fence_of)} | {
        "SIGNS": SIGNS,
        "STATES": STATES,
        "GRADES": GRADES,
        "SEAM_FIGURES": SEAM_FIGURES,
        "FIGURES": FIGURES,
        "ERROR_COLORS": [error_color(index / NUM_SWATCHES) for index in range(NUM_SWATCHES + 1)],
        "FULL_ERROR": f"{255 * FULL_ERROR:.0f}",
    }
    made.filters |= {
        "figure_row": figure_row,
        "last_name": _last_name,
        "spell_json": partial(json.dumps, indent=1, sort_keys=True, default=str),
    }
    return made


def _html(value: object) -> object:
    return "" if value is None else value


def templates_of(package: str, spell: Callable[[object], object] = _html) -> Environment:
    """Return a Jinja environment for a package: values are escaped by default, unknown names are errors.

    Args:
        package: full name of a package that has a folder "templates".
        spell: converts each value before it is escaped; by default None becomes an empty string.

    Raises:
        ValueError: the package has no folder "templates".
    """
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
    """Return a Markdown code fence: at least three backticks, and more than any run of backticks in `quoted`.

    Args:
        quoted: lines that the code block will hold.
    """
    longest = max(map(len, re.findall("`+", "\n".join(quoted))), default=0)
    return "`" * max(3, longest + 1)


def _last_name(setting: str) -> str:
    return setting.rpartition(".")[2]


def markdown(value: object) -> Markup:
    """Return a value as one line of Markdown, escaped so that it makes no HTML, table, link or emphasis.

    None becomes an empty text; a value of the type `Markup` counts as escaped and stays unchanged.
    """
    if isinstance(value, Markup):
        return value
    words = SPECIAL.sub(r"\\\g<0>", one_line("" if value is None else str(value)))
    return Markup(words.replace("&", "&amp;").replace("<", "&lt;"))  # noqa: S704 - it is escaped here


@cache
def asset(name: str, package: str = PACKAGE) -> str:
    """Return the text of a style sheet or script in a package's folder "templates"; each file is read once.

    Args:
        name: name of the file, as "page.css".
        package: full name of the package.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


def policy(style: str, scripts: Sequence[str], *, follows: bool) -> str:
    """Return the Content-Security-Policy of a page: the page loads nothing and runs only these scripts.

    Args:
        style: text of the only style sheet.
        scripts: texts of the allowed scripts. With more than one, the page may also start web workers from blobs, which
            are bound by the same policy.
        follows: whether the page follows a batch: it may connect to its own server, and to no other.
    """
    workers = "worker-src blob:; " if len(scripts) > 1 else ""
    asks = "connect-src 'self'; " if follows else ""
    return (
        f"default-src 'none'; style-src {digest(style)}; script-src {' '.join(map(digest, scripts))}; {workers}"
        f"img-src data:; {asks}base-uri 'none'; form-action 'none'"
    )


def digest(text: str) -> str:
    """Return the hash of a style sheet or script as a Content-Security-Policy names it: "'sha256-…'", in base64."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
