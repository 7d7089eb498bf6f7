"""Formats of other programs: the files that identify each format, its description, and how to convert it for training.

Used for the hint of the error where a folder holds no COLMAP model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote

from splatbatch.files import open_regular
from splatbatch.scene.photos.folders import PHOTO_FOLDERS, PHOTOGRAPHS

_HEAD = 4096
"""Number of bytes at the start of a file that are searched."""
_MOST_LOOKED_INTO = 20
"""Most files of one format whose start is read."""
_COLMAP = "Reconstruct the photographs (splatbatch reconstruct PHOTOS), or write the poses as a transforms.json."
_OPENMVG = "Run `openMVG_main_openMVG2Colmap -i {file} -o NEW`, then `splatbatch import NEW DIR`."
_ALICEVISION = "Run `aliceVision_exportColmap -i {file} -o NEW`, then `splatbatch import NEW DIR`."
_TRAINED = (
    "A splat needs no training. To train it anew, name the scene (photographs, COLMAP model) that it was made from."
)
_PHOTOS = tuple(f"{above}*{suffix}" for above in ("", "*/", "*/*/") for suffix in sorted(PHOTOGRAPHS))


@dataclass(frozen=True)
class ForeignFormat:
    """A format of another program that cannot be trained directly."""

    what: str
    """Description for people, as a noun with its article: "a point cloud"."""
    patterns: tuple[str, ...]
    """Shell patterns (`*`, `?`) of the format's files, relative to the folder; upper and lower case are equal."""
    todo: str
    """Instruction for people, as a sentence, to be filled in by `str.format`.

    {file} is the found file, {beside} its folder, {folder} the folder that was searched, and {photos} the folder of all
    photographs there.
    """
    heads: tuple[bytes, ...] = ()
    """Byte strings of which at least one occurs in the first 4 KiB of such a file. Empty: the file's name is enough.

    JSON is compared without its white space. With such strings, a file that the user names needs only the suffix of a
    pattern.
    """


FORMATS = (
    ForeignFormat(
        "a Metashape project",
        ("*.psx", "*.psz"),
        "Export the cameras (File > Export > Export Cameras, Agisoft XML), then `splatbatch import` the XML file.",
    ),
    ForeignFormat(
        "a reconstruction of OpenSfM or ODM",
        ("reconstruction.json", "opensfm/reconstruction.json"),
        "Run `opensfm export_colmap {beside}`, then `splatbatch import {beside}`.",
        (b'[{"cameras":',),
    ),
    ForeignFormat(
        "OpenMVG's reconstruction",
        ("sfm_data.json", "*/sfm_data.json"),
        _OPENMVG,
        (b'{"sfm_data_version":',),
    ),
    ForeignFormat("OpenMVG's reconstruction", ("sfm_data.bin", "*/sfm_data.bin"), _OPENMVG),
    ForeignFormat("AliceVision's reconstruction (Meshroom)", ("*.sfm", "sfm.json"), _ALICEVISION, (b'{"version":["',)),
    ForeignFormat("AliceVision's reconstruction (Meshroom)", ("sfm.abc",), _ALICEVISION),
    ForeignFormat(
        "a Meshroom project",
        ("*.mg",),
        "In Meshroom, add the node ExportColmap after StructureFromMotion, then `splatbatch import` the node's folder.",
        (b'"fileVersion":',),
    ),
    ForeignFormat(
        "a table of poses from RealityScan",
        ("*.csv",),
        "In RealityScan, export the registration as COLMAP instead: a table of poses lacks the lenses.",
        (b"#name",),
    ),
    ForeignFormat(
        "a RealityScan project",
        ("*.rsproj", "*.rcproj"),
        "Open the project in RealityScan and export the registration as COLMAP.",
    ),
    ForeignFormat(
        "a pose from RealityScan beside its photograph",
        ("*.xmp", *(f"{one}/*.xmp" for one in PHOTO_FOLDERS)),
        "In RealityScan, export the registration as COLMAP instead: poses of single files lack the points.",
        (b"xcr:",),
    ),
    ForeignFormat("a Bundler file", ("*.out", "bundle/*.out"), _COLMAP, (b"# Bundle file",)),
    ForeignFormat("VisualSFM's reconstruction", ("*.nvm",), _COLMAP),
    ForeignFormat(
        "an OpenMVS scene", ("*.mvs",), "Name the COLMAP model that the scene was made from; OpenMVS computes no poses."
    ),
    ForeignFormat(
        "a Pix4D project in OPF",
        ("*.opf", "*.json"),
        "Run `opf2colmap {file}` (pip install pyopf[tools]), then `splatbatch import` its result.",
        (b'"application/opf-project+json"',),
    ),
    ForeignFormat(
        "a Pix4D project",
        ("*.p4d", "*calibrated_camera_parameters.txt", "*/params/*calibrated_camera_parameters.txt"),
        "In PIX4Dmatic, export it as OPF. Then run `opf2colmap` (pip install pyopf[tools]) and `splatbatch import`.",
    ),
    ForeignFormat("an aerotriangulation of iTwin Capture (BlocksExchange)", ("*.xml",), _COLMAP, (b"<BlocksExchange",)),
    ForeignFormat(
        "a file of poses in LLFF's format",
        ("poses_bounds.npy",),
        "Name the folder of the COLMAP model (sparse/0) that the poses were made from.",
    ),
    ForeignFormat(
        "a Polycam capture",
        ("keyframes/corrected_cameras/*.json", "keyframes/cameras/*.json"),
        "Run `ns-process-data polycam --data {folder} --output-dir NEW` (nerfstudio),"
        " then `splatbatch import NEW DIR`.",
        (b'"t_00":',),
    ),
    ForeignFormat(
        "a Record3D capture",
        ("*.r3d",),
        "Run `ns-process-data record3d --data {file} --output-dir NEW` (nerfstudio), then `splatbatch import NEW DIR`.",
    ),
    ForeignFormat(
        "a camera file for MVSNet",
        ("cams/*_cam.txt",),
        "Name the folder of the COLMAP model (sparse/0) that the cameras were made from.",
    ),
    ForeignFormat("a file of poses in the format of NSVF or ScanNet", ("pose/*.txt",), _COLMAP),
    ForeignFormat("a trajectory of camera poses", ("*trajectory*.txt", "groundtruth.txt", "poses.txt"), _COLMAP),
    ForeignFormat(
        "the settings file of a 3DGS training",
        ("cfg_args",),
        "Name the scene that was trained: the folder that {file} has as source_path.",
    ),
    ForeignFormat(
        "a part of a COLMAP model",
        tuple(
            f"{above}{part}.{suffix}"
            for above in ("", "sparse/0/", "sparse/")
            for part in ("cameras", "images", "points3D")
            for suffix in ("bin", "txt")
        ),
        "A model is cameras, images and points3D, all .bin or all .txt: copy all three to sparse/0, or export anew.",
    ),
    ForeignFormat(
        "COLMAP's database, which has matches and no poses",
        ("*.db",),
        "Compute the poses: colmap mapper --database_path {file} --image_path IMAGES --output_path sparse",
        (b"SQLite format 3",),
    ),
    ForeignFormat(
        "a photograph without a pose",
        _PHOTOS,
        "Reconstruct the photographs first: splatbatch reconstruct {photos}",
    ),
    ForeignFormat("a trained splat", ("*.splat", "*.ksplat", "*.spz", "*.sog"), _TRAINED),
    ForeignFormat("a trained splat", ("*.ply", "*/*/*.ply"), _TRAINED, (b"f_dc_0",)),
    ForeignFormat(
        "a point cloud",
        ("*.ply", "*.las", "*.laz", "*.e57", "*.pcd"),
        "Points have no cameras: reconstruct the photographs. To add a PLY to poses: `splatbatch import --points`.",
    ),
    ForeignFormat(
        "a video",
        ("*.mp4", "*.mov", "*.insv", "*.mkv", "*.avi"),
        "Take photographs from the video (ffmpeg -i {file} -vf fps=2 images/%05d.jpg), then `splatbatch reconstruct`.",
    ),
    ForeignFormat(
        "an archive",
        ("*.zip", "*.tar", "*.tar.gz", "*.tgz", "*.7z"),
        "Unpack the archive, and name the unpacked folder.",
    ),
)
"""All known formats. The first format that matches a folder counts, so specific formats stand before general ones."""


def seen_at(place: Path) -> str:
    """Return what a file of another program is, or a file in a folder, and what to do; empty if no format matches.

    A text for people: "scan.psx is a Metashape project. Open it …". The first format in `FORMATS` counts. A missing
    path or a folder that cannot be listed matches no format. A file that cannot be read matches only formats that are
    known by the name alone. Of each format at most 20 files are looked into.

    Raises:
        PermissionError: the folder above `place` may not be entered.
    """
    found = ((one, file) for one in FORMATS if (file := _file_of(one, place)))
    return next((f"{file.name} is {one.what}. {_filled(one.todo, file, place)}" for one, file in found), "")


def _filled(todo: str, file: Path, place: Path) -> str:
    """Return an instruction with the paths of a file that was found at a place, quoted for a shell."""
    folder = place if place != file else file.parent
    above = [one for one in file.parents if one.is_relative_to(folder)]
    photos = next((one for one in above if one.absolute().name.casefold() in PHOTO_FOLDERS), folder)
    paths = {"file": file, "beside": file.parent, "folder": folder, "photos": photos}
    return todo.format(**{name: quote(str(path)) for name, path in paths.items()})


def _file_of(one: ForeignFormat, place: Path) -> Path | None:
    is_file, looked_into = place.is_file(), 0
    for pattern in one.patterns:
        parts = [f"*{Path(pattern).suffix}"] if is_file and one.heads else pattern.split("/")
        own = place.absolute().parts[-len(parts) :]
        is_so = len(own) == len(parts) and all(map(_fits, own, parts))
        for file in ([place] if is_so else []) if is_file else _matches(place, parts):
            looked_into += 1
            if not one.heads or any(head in head_of(file) for head in one.heads):
                return file
            if looked_into >= _MOST_LOOKED_INTO:
                return None
    return None


def _matches(folder: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the paths below a folder that match a pattern, in order; nothing if it cannot be read."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        return
    for name in names:
        if _fits(name, parts[0]):
            if len(parts) > 1:
                yield from _matches(folder / name, parts[1:])
            else:
                yield folder / name


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name.casefold(), pattern.casefold())


def head_of(file: Path) -> bytes:
    """Return the first 4 KiB of a file, without white space if they are JSON; empty if the file cannot be read."""
    try:
        with open_regular(file) as opened:
            head = opened.read(_HEAD)
    except OSError:
        return b""
    return b"".join(head.split()) if head.lstrip()[:1] in (b"{", b"[") else head
