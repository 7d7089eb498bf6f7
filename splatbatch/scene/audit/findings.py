"""Findings of the audit, and all kinds of findings with their severity, reason and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from splatbatch.scene.photos.undistort import UNDISTORT
from splatbatch.text import list_some

Severity = Literal["error", "warning", "info"]
_WRONG_K = "focal length and principal point belong to photographs of another size, and the splat blurs silently"
_FIELD_OF_VIEW = "the trainer uses the field of view, which stays the same when photographs are only resized"
_DIES = "the trainer cannot load such a file and fails, at worst in the middle of a training"
_NO_RAYS = "without a valid pose and camera, the photographs cannot be used in training"
_LOADERS_DIFFER = "programs read such a photograph differently: most convert it to 8-bit RGB, some fail"
_IN_ITSELF = "the patch can be trained, but its splat will not fit patches that are cut from the source today"
_UNUSUAL = "such a value is possible, but mostly a mistake"
FIX = "splatbatch verify-dims --fix {} --out DIR"
RECUT = "Cut the patch again from the source reconstruction."
_TRIANGULATE = f"{RECUT} Or triangulate the points again."
REPAIR = "Correct the camera parameters in the source reconstruction, and cut the patch again."
_EXPORT = "Export the model again, or make one anew: splatbatch reconstruct IMAGES."
_RECUT_TODAY = "Cut the patch again from the source reconstruction as it is today."
_RIGS = "Delete the files rigs and frames (COLMAP makes trivial ones), or copy both again from the source model."
_TO_RGB = "Convert the file to 8-bit RGB (magick IN -colorspace sRGB -depth 8 -alpha off OUT); keep name and size."
_WHOLE = "Copy the {} again from the camera or a backup: the original may be whole."
_CONTRADICTS = "points do not fall where the photographs show them: the splat blurs, or does not form at all"


@dataclass(frozen=True)
class TrainerRules:
    """What the chosen trainer accepts, which decides the severity of some findings.

    Where patches have different trainers, it is what all of these accept.
    """

    absorbs_resize: bool
    """Whether the trainer works from the field of view, so that resized photographs are right for it."""
    camera_models: frozenset[str]
    """Names of the COLMAP camera models that the trainer takes."""
    name: str
    """Name of the trainer, for messages; of several trainers, their names with commas."""
    undistorts: frozenset[str] = frozenset()
    """Names of the camera models whose photographs the trainer undistorts itself; empty: none.

    A lens too wide for a pinhole camera is still an error.
    """


@dataclass(frozen=True)
class FindingKind:
    """A kind of finding: its severity and the reason for this severity (`why`)."""

    severity: Severity
    why: str
    absorbed: str = ""
    """Reason why a trainer that works from the field of view gets a warning only; empty: the severity is the same."""
    remedy: str = ""
    """What to do about such a finding; empty: the check words the remedy for each case."""


@dataclass(frozen=True)
class AuditFinding:
    """One finding about a patch: what it concerns, what is wrong, the remedy, and the reason for its severity."""

    patch: str
    """Name of the patch; "source" for the source reconstruction."""
    severity: Severity
    kind: str
    """Kind of the finding, a key of `KINDS`: "no_images"."""
    subject: str
    """File, folder, camera or image that the finding is about, in words."""
    message: str
    remedy: str
    why: str
    traceback: str = ""
    """Traceback of an unexpected exception in splatbatch itself, for the ledger; empty for all other findings."""

    def in_words(self) -> str:
        """Return subject, message and remedy as one text: "camera 1: MESSAGE. REMEDY"."""
        return f"{self.subject}: {self.message}. {self.remedy}"


OF_GEOMETRY = (
    "inverted_poses", "flipped_axes", "quaternion_order", "poses_exchanged", "wrong_pose", "points_moved",
    "points_mismatch", "cameras_exchanged", "focal_off", "principal_point_off", "wrong_k", "k_rescaled",
    "half_applied", "turned", "mirrored", "distortion_dropped", "distortion_kept", "wrong_lens", "reprojection",
)  # fmt: skip

KINDS: dict[str, FindingKind] = {
    "internal_fault": FindingKind(
        "error",
        "splatbatch itself failed while it checked the patch; the rest of the patch was not checked",
        remedy="The other patches are not affected. Please report this line as a bug of splatbatch.",
    ),
    # the model
    **dict.fromkeys(("missing_model", "corrupt_model"), FindingKind("error", "there is nothing to train from")),
    "no_images": FindingKind("error", "there is nothing to train from", remedy=f"{RECUT} Or remove the patch."),
    "few_images": FindingKind(
        "warning",
        "the patch is trained, but its quality is measured on too few photographs to mean anything",
        remedy="Lower evaluation.holdout_every, name photographs in evaluation.holdout_list, or enlarge the patch.",
    ),
    "too_few_images": FindingKind(
        "error",
        "a splat needs at least two photographs besides those held out",
        remedy="Merge the patch with a neighbour, or remove it.",
    ),
    "no_points": FindingKind("error", "training places the first Gaussians on the points", remedy=_TRIANGULATE),
    "bad_points": FindingKind(
        "error",
        "one Gaussian with an invalid position spoils the whole training",
        remedy="Remove these points (colmap point_filtering), or cut the patch again.",
    ),
    "unseen_points": FindingKind(
        "warning", "Gaussians start at these points, and no photograph of the patch corrects them"
    ),
    "few_points": FindingKind(
        "warning", "neither geometry nor photographs can be checked, and few Gaussians start", remedy=_TRIANGULATE
    ),
    "far_points": FindingKind(
        "warning",
        "points have another unit or origin than the cameras, or no certain place; huge Gaussians start there",
        remedy="Remove these points, or give points and poses the same transformation (pycolmap: transform).",
    ),
    "rounded_points": FindingKind(
        "warning",
        "points and photographs disagree by what was rounded off, and the splat blurs",
        remedy="Subtract an offset before coordinates are stored as float32, and export points and poses again.",
    ),
    **dict.fromkeys(("no_pose", "bad_pose"), FindingKind("error", _NO_RAYS, remedy=_EXPORT)),
    "duplicate_name": FindingKind(
        "error",
        "one photograph would be trained with two poses",
        remedy="Make a model in which each photograph stands once: splatbatch reconstruct IMAGES.",
    ),
    "several_models": FindingKind(
        "warning",
        "COLMAP could not join these models; each is a scene of its own",
        remedy="Merge the models (colmap model_merger), or move all models but one to another folder.",
    ),
    "formats_differ": FindingKind(
        "warning",
        "some programs read the .bin files and others the .txt files, so that they see different models",
        remedy="Remove the older files. If both stay, the .bin files are read, here and by COLMAP.",
    ),
    "cut_short": FindingKind(
        "warning",
        "what is missing from the file is not trained",
        remedy="Copy the file again. If points were removed on purpose, correct the number in its head.",
    ),
    "unregistered": FindingKind(
        "warning",
        "what only the photographs without a pose show will be missing from the splat",
        remedy="Use a larger model, or register the others (more features, sequential or exhaustive matching).",
    ),
    "rigs_differ": FindingKind(
        "warning", "programs differ in which poses they take: those of images, or of frames and rigs", remedy=_RIGS
    ),
    "broken_rigs": FindingKind(
        "warning",
        "poses are read from the images file; but COLMAP and programs built on COLMAP refuse the model",
        remedy=_RIGS,
    ),
    "little_overlap": FindingKind(
        "warning", "a surface is placed well only where three photographs see it from different places"
    ),
    "far_apart": FindingKind(
        "error", "with coordinates this large, float32 places Gaussians only in steps of more than a millimetre"
    ),
    # cameras
    **dict.fromkeys(("bad_params", "params_count", "bad_camera_size"), FindingKind("error", _NO_RAYS, remedy=REPAIR)),
    "unsupported_model": FindingKind(
        "error",
        "the trainer does not take this camera model",
        remedy=f"Undistort photographs and model together: {UNDISTORT}",
    ),
    "distorted": FindingKind(
        "info",
        "photographs of this camera are undistorted while they are loaded, and cropped where nothing is seen",
        remedy=f"Nothing needs to be done. To undistort with COLMAP instead: {UNDISTORT}",
    ),
    "principal_point_outside": FindingKind(
        "error", "the camera parameters belong to photographs of another size", remedy=REPAIR
    ),
    "principal_point_far": FindingKind("warning", _UNUSUAL, remedy=f"Unless the photographs were cropped: {REPAIR}"),
    "impossible_focal": FindingKind(
        "error",
        "no lens has this focal length at this image size; the camera parameters belong to another size",
        remedy=REPAIR,
    ),
    "unusual_focal": FindingKind("warning", _UNUSUAL),
    # geometry: what keypoints, K, poses and points say about each other
    **dict.fromkeys(OF_GEOMETRY, FindingKind("error", _CONTRADICTS)),
    "keypoints_left": FindingKind(
        "warning", "trainers ignore keypoints, but programs that use keypoints will be misled"
    ),
    "stray_points": FindingKind(
        "error",
        "Gaussians start at places that the photographs contradict",
        remedy="Remove points with a large error (colmap point_filtering), or use the points3D of these images.",
    ),
    "flat_angles": FindingKind(
        "warning",
        "Gaussians start at depths that are a guess",
        remedy="Take photographs from places farther apart,"
        " or remove points with a small angle (colmap point_filtering).",
    ),
    "out_of_view": FindingKind(
        "error",
        _CONTRADICTS,
        remedy="Use the images, cameras and points3D files of one model; all three are written together.",
    ),
    "pairs_disagree": FindingKind(
        "error",
        _CONTRADICTS,
        remedy="Use the images, cameras and points3D files that were made from these photographs.",
    ),
    # sizes
    "scaled": FindingKind("error", _WRONG_K, _FIELD_OF_VIEW),
    "few_pixels_off": FindingKind(
        "error",
        _WRONG_K,
        "the trainer uses the field of view; a few pixels of size move the principal point by a few pixels at most",
    ),
    **dict.fromkeys(("k_left_behind", "size_alone", "transposed", "other_size"), FindingKind("error", _WRONG_K)),
    "mixed_sizes": FindingKind(
        "error",
        "camera parameters cannot be right for photographs of several sizes",
        _FIELD_OF_VIEW,
        remedy="Resize the photographs of odd size from their originals, or give each size its own camera in COLMAP.",
    ),
    "unlike_ratios": FindingKind(
        "error",
        "trainers rescale all cameras by the ratio of the first photograph to its camera",
        _FIELD_OF_VIEW,
        remedy=f"Bring every camera to its photographs' true size: {FIX.format('scale')} (or crop).",
    ),
    # files
    "no_image_folder": FindingKind("error", _DIES),
    "missing_image": FindingKind("error", _DIES, remedy="Correct the link, or copy the photograph there."),
    "photos_exchanged": FindingKind("error", "photographs are trained with the poses of others"),
    "other_pictures": FindingKind(
        "error",
        "photographs are trained with the poses of others, or upside down",
        remedy="Copy the photographs again from which COLMAP made the model, or make a model from these.",
    ),
    "other_content": FindingKind(
        "warning",
        "these photographs do not show the points that their cameras should see",
        remedy="Look at the photograph, and copy it again from the folder that COLMAP read.",
    ),
    "displaced": FindingKind(
        "error",
        "the photographs do not fit their camera parameters, and the splat blurs silently",
        remedy="Use the photographs that the model was made from, uncropped; or make a model from these.",
    ),
    "lens_mix": FindingKind(
        "error", "the photographs do not fit their camera parameters, and the splat blurs silently"
    ),
    "blank": FindingKind(
        "warning",
        "these photographs do not show the points that their cameras should see",
        remedy="Copy the photograph again; one that is black or of one colour is of no use in training.",
    ),
    "blurred": FindingKind(
        "info",
        "what this photograph alone shows will be blurred",
        remedy="Leave the photograph out if others show the same.",
    ),
    "undecodable": FindingKind("error", _DIES, remedy=_WHOLE.format("file")),
    "unicode_form": FindingKind("error", "file systems compare the bytes of names, and do not find the file"),
    "unreadable_mask": FindingKind(
        "error", _DIES, remedy="Copy the mask again, or remove it: without a mask the whole photograph is trained."
    ),
    "mask_size": FindingKind(
        "warning",
        "the mask is stretched over the photograph, and hides other parts of the photograph than it should",
        remedy="Make the mask again from this photograph, in the same size.",
    ),
    "mask_values": FindingKind(
        "error", "parts where the mask is darker than 128 are ignored: nothing of these photographs is trained"
    ),
    "mask_names": FindingKind("warning", "where no mask is found, the whole photograph is trained"),
    "mask_share": FindingKind(
        "warning",
        "with such a mask almost all of the photograph is ignored in training",
        remedy="Black parts of a mask are ignored, white parts are trained: invert the mask if it means the opposite.",
    ),
    "black_mask": FindingKind(
        "warning",
        "with a black mask the whole photograph is ignored in training",
        remedy="Black parts of a mask are ignored, white parts are trained: invert the mask, or remove it.",
    ),
    "wrong_case": FindingKind(
        "error",
        "file systems that tell upper from lower case do not find the file",
        remedy="Rename the file, or the image in the model, so that both are spelt alike.",
    ),
    "empty_image": FindingKind("error", _DIES, remedy="Copy the photograph again."),
    "truncated_image": FindingKind("error", _DIES, remedy=_WHOLE.format("photograph")),
    "unreadable_image": FindingKind(
        "error",
        _DIES,
        remedy="Make the photograph readable, replace it, or make a model without it: splatbatch reconstruct IMAGES.",
    ),
    "cmyk": FindingKind(
        "error",
        "the four channels (CMYK) are ink, not light; programs that read three channels see wrong colours",
        remedy=_TO_RGB,
    ),
    **dict.fromkeys(("sixteen_bit", "alpha"), FindingKind("warning", _LOADERS_DIFFER, remedy=_TO_RGB)),
    "animated": FindingKind("warning", "only the first frame of such a file is used", remedy=_TO_RGB),
    "exif_orientation": FindingKind(
        "warning",
        "the photograph fits the camera as stored; a program that obeys its EXIF orientation turns it",
        remedy="Reset the orientation tag: exiftool -Orientation=1 -n FILE",
    ),
    "name_clash": FindingKind(
        "warning", "programs that know photographs by name without extension take one for the other"
    ),
    "shifted_pairing": FindingKind(
        "warning", "programs that pair the files of two folders in order train photographs with a neighbour's pose"
    ),
    # against the source
    **dict.fromkeys(
        ("camera_drift", "pose_drift", "not_in_source"), FindingKind("warning", _IN_ITSELF, remedy=_RECUT_TODAY)
    ),
}


@dataclass(frozen=True)
class FindingWriter:
    """Makes the findings about one patch, with the severity that they have under the trainer's rules."""

    patch: str
    rules: TrainerRules
    alike: Mapping[int, int] = field(default_factory=dict)
    """Ids of cameras that are judged as if they were another camera, with that camera's id; empty: none.

    Cameras with few photographs are judged together with a camera that has nearly the same parameters.
    """

    def camera(self, number: int) -> str:
        """Return the name of a camera for messages: "camera 1", or "cameras 1, 2, 3 and 27 more".

        The latter if other cameras are judged together with camera `number`; see `alike`.
        """
        others = [own for own, judged in self.alike.items() if judged == number]
        return f"cameras {list_some(map(str, sorted([number, *others])))}" if others else f"camera {number}"

    def note(self, kind: str, subject: str, message: str, remedy: str = "") -> AuditFinding:
        """Return a finding; `KINDS` gives its severity and reason, and its remedy if `remedy` is empty.

        Where the trainer tolerates resized photographs, kinds that allow for this become warnings.

        Args:
            kind: kind of the finding, a key of `KINDS`.
            subject: what the finding is about, in words.
            message: what is wrong.
            remedy: what to do; empty: the remedy of the kind.

        Raises:
            KeyError: `kind` is not a key of `KINDS`.
        """
        known = KINDS[kind]
        severity, why = known.severity, known.why
        if known.absorbed and self.rules.absorbs_resize:
            severity, why = "warning", known.absorbed
        return AuditFinding(self.patch, severity, kind, subject, message, remedy or known.remedy, why)
