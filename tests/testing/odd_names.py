"""Photographs of the quarry under file names that programs take for something else."""

from __future__ import annotations

import os
from pathlib import Path

from geotagged import QUARRY
from PIL import Image

from splatbatch.scene.patches import natural_key

BLANKS = [" lead.jpg", "trail .jpg", "IMG (0).jpg", "NAME NAME.jpg", "tab\there.jpg", "two\nlines.jpg", "cr\rhere.jpg"]
SHELL = ["#1.jpg", "it's.jpg", '"q".jpg', "-w.jpg", "--help.jpg", "$HOME.jpg", "~.jpg", "a&b;c|d.jpg", "`id`.jpg"]
PATTERNS = ["100%.jpg", "%04d.jpg", "why?.jpg", "star*.jpg", "[1].jpg", "{scene}.jpg", "back\\slash.jpg", "dots..jpg"]
MARKUP = ["<b>.jpg", "a,b.jpg", "k=v.jpg", "a: b.jpg", "true.jpg"]
LETTERS = [
    "\u00e9t\u00e9.jpg",
    "e\u0301te\u0301.jpg",
    "\U0001f600.jpg",
    "\u65e5\u672c.jpg",
    "\u202egnp.jpg",
    "twin.jpg",
    "TWIN.JPG",
]
CONTROL = ["line\u2028.jpg", "next\x85.jpg", "red\x1b[31m.jpg", "gone\x7f.jpg"]
USABLE = [*BLANKS, *SHELL, *PATTERNS, *MARKUP, *LETTERS, *CONTROL, "a" * 251 + ".jpg"]
"""41 names."""
REFUSED = ["..jpg", "late.jpg ", "late.jpg.", os.fsdecode(b"gr\xfcn.jpg")]


def odd_photographs(folder: Path) -> Path:
    """Write the photographs of the quarry's two cameras under these names, in their order, some of them twice."""
    for below, camera, names in (("left #1", "left", USABLE[:21]), ("right (2)", "right", USABLE[21:])):
        (folder / below).mkdir(parents=True)
        sources = sorted((QUARRY / "images" / camera).glob("*.jpg"))
        for place, name in enumerate(sorted(names, key=natural_key)):
            with Image.open(sources[place * len(sources) // len(names)]) as image:
                image.save(folder / below / name, quality=85 + place % 10)
    for name in REFUSED:
        (folder / name).write_bytes(sources[0].read_bytes())
    return folder
