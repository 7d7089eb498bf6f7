"""Every registered photograph: is it there, whole, and of a kind that loaders agree on?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.photos.folders import Absent, Found, Misspelt, Place
from splatbatch.scene.photos.photo import Header, Photo, Trait, Unreadable
from splatbatch.scene.photos.sizes import spell

_TO_RGB = "Convert it to 8-bit RGB (magick IN -colorspace sRGB -depth 8 -alpha off OUT); keep name and size."
_TRAITS: dict[Trait, tuple[str, str]] = {
    "cmyk": ("cmyk", "has four colour channels (CMYK)"),
    "deep": ("sixteen_bit", "has more than 8 bits per channel"),
    "alpha": ("alpha", "has an alpha channel"),
    "animated": ("animated", "holds several frames or pages"),
}
_FAULTS = {
    "missing": ("missing_image", "Mend the link, or copy the photograph there."),
    "empty": ("empty_image", "Copy the photograph again."),
    "truncated": ("truncated_image", "Copy the photograph again; the original may be whole."),
    "unreadable": (
        "unreadable_image",
        "Make it readable or replace it, or remove the image from the model (colmap image_deleter).",
    ),
}


@dataclass(frozen=True)
class Shot:
    """An image of the model, its camera, and what lies where its photograph should be."""

    image: Image
    camera: Camera
    place: Place
    header: Header | None
    """None where there is no file."""


def check_photos(shots: list[Shot], scribe: Sink) -> Iterator[Finding]:
    """Yield one finding for every oddity of every photograph, sizes apart."""
    for shot in shots:
        match shot.place, shot.header:
            case Found(), Photo() as photo:
                yield from _check_photo(shot, photo, scribe)
            case Found(), Unreadable() as fault:
                kind, remedy = _FAULTS[fault.fault]
                yield scribe.note(kind, shown(shot.image.name), f"cannot be read: {shown(fault.what)}", remedy)
            case Misspelt(actual, "NFC" | "NFD" as form), _:
                message = f"lies there under the same name with its accents encoded otherwise; the model has {form}"
                remedy = (
                    f"Rename the files to the model's form: convmv -f utf8 -t utf8 --{form.lower()} -r --notest IMAGES."
                )
                yield scribe.note("unicode_form", shown(shot.image.name), message, remedy)
            case Misspelt(actual), _:
                message = f"is called {shown(actual)} on disk"
                remedy = "Rename the file, or the image in the model, so that both are spelt alike."
                yield scribe.note("wrong_case", shown(shot.image.name), message, remedy)
            case Absent(_, elsewhere), _ if elsewhere:
                message = f"no such file; {shown(elsewhere)} is there"
                remedy = "Lay the files out as the names in the model say, or rename its images."
                yield scribe.note("missing_image", shown(shot.image.name), message, remedy)
            case Absent(similar), _:
                message = "no such file" + (f"; there is {shown(similar)}" if similar else "")
                remedy = "Copy the photograph there, or remove the image from the model (colmap image_deleter)."
                yield scribe.note("missing_image", shown(shot.image.name), message, remedy)


def _check_photo(shot: Shot, photo: Photo, scribe: Sink) -> Iterator[Finding]:
    subject = shown(shot.image.name)
    for trait in photo.traits:
        kind, message = _TRAITS[trait]
        yield scribe.note(kind, subject, message, _TO_RGB)
    if photo.orientation != 1 and photo.size == (shot.camera.width, shot.camera.height):
        message = f"EXIF orientation {photo.orientation}, but the camera fits the stored {spell(photo.size)} px"
        yield scribe.note("exif_orientation", subject, message, "Reset the tag: exiftool -Orientation=1 -n FILE")
