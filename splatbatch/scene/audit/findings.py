"""Every class of finding: its name, how grave it is, for whom, and why. The one place where that is decided."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from splatbatch.files import Record

Severity = Literal["error", "warning", "info"]
_WRONG_K = "the trainer takes K as it stands, so every ray of these photographs is bent and the splat blurs silently"
_FIELD_OF_VIEW = "the trainer works from the field of view, which a pure resize leaves as it is"
_NEARLY = "the trainer works from the field of view; a few pixels move the principal point by at most as many"
_DIES = "the trainer cannot load it and dies, at worst in mid-run"
_NO_RAYS = "no ray can be computed from it"
_LOADERS_DIFFER = "loaders differ in what they make of it: most convert to 8-bit RGB, some fail"
_IN_ITSELF = "the patch is whole in itself and can be trained, but it will not fit what is cut from the source today"
_UNUSUAL = "possible, but rarely meant"
_CONTRADICTS = "points do not fall where the photographs show them: the splat blurs, or does not form at all"


@dataclass(frozen=True)
class TrainerRules:
    """What the chosen trainer forgives."""

    absorbs_resize: bool
    """It works from the field of view, so that photographs of another resolution are right to it."""
    camera_models: frozenset[str]
    """Names of the COLMAP camera models that it takes."""
    name: str
    undistorts: frozenset[str] = frozenset()
    """Names of those whose photographs it undistorts itself, where a pinhole can show them."""


@dataclass(frozen=True)
class Kind:
    """A class of finding; `absorbed` says why a trainer that works from the field of view may go on, if it may."""

    severity: Severity
    why: str
    absorbed: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, where, how it is mended, and why it is an error or only a warning."""

    patch: str
    severity: Severity
    kind: str
    """A key of `KINDS`."""
    subject: str
    """The file, camera or image that it is about."""
    message: str
    remedy: str
    why: str
    traceback: str = ""
    """Of a fault of ours; for the ledger."""

    def to_record(self) -> Record:
        """Return the JSON form."""
        return asdict(self)

    def in_words(self) -> str:
        """Return what is wrong, with the remedy."""
        return f"{self.subject}: {self.message}. {self.remedy}"


OF_GEOMETRY = (
    "inverted_poses", "flipped_axes", "quaternion_order", "poses_exchanged", "wrong_pose", "points_moved",
    "points_mismatch", "cameras_exchanged", "focal_off", "principal_point_off", "wrong_k", "k_rescaled",
    "half_applied", "turned", "mirrored", "distortion_dropped", "distortion_kept", "wrong_lens", "reprojection",
)  # fmt: skip

KINDS: dict[str, Kind] = {
    "internal_fault": Kind("error", "splatbatch itself failed over the patch: nothing is known of the rest of it"),
    # the model
    "missing_model": Kind("error", "there is nothing to train from"),
    "corrupt_model": Kind("error", "there is nothing to train from"),
    "no_images": Kind("error", "there is nothing to train from"),
    "few_images": Kind("warning", "it trains, but its quality is measured on too few photographs to mean anything"),
    "too_few_images": Kind("error", "a splat needs at least two photographs besides those held out"),
    "no_points": Kind("error", "the first Gaussians are placed on the points"),
    "bad_points": Kind("error", "a Gaussian at a place that is no number poisons the whole training"),
    "unseen_points": Kind("warning", "Gaussians start there that no photograph of the patch corrects"),
    "no_pose": Kind("error", _NO_RAYS),
    "bad_pose": Kind("error", _NO_RAYS),
    "duplicate_name": Kind("error", "one photograph would be trained with two poses"),
    "several_models": Kind("warning", "COLMAP could not join them; each is a scene of its own"),
    "formats_differ": Kind("warning", "programs differ in which of the two they read"),
    "unregistered": Kind("warning", "what only those photographs show will be missing from the splat"),
    "rigs_differ": Kind("warning", "programs differ in which poses they take: those of images, or of frames and rigs"),
    "broken_rigs": Kind("warning", "poses are read from images; but COLMAP and programs built on it refuse the model"),
    "far_apart": Kind("error", "float32 would move its Gaussians onto steps larger than a millimetre"),
    # cameras
    "bad_params": Kind("error", _NO_RAYS),
    "params_count": Kind("error", _NO_RAYS),
    "bad_camera_size": Kind("error", _NO_RAYS),
    "unsupported_model": Kind("error", "the trainer does not take this camera model"),
    "distorted": Kind("info", "its photographs are undistorted while they are loaded, and cut where nothing is seen"),
    "principal_point_outside": Kind("error", "K belongs to a photograph of another size"),
    "principal_point_far": Kind("warning", _UNUSUAL),
    "impossible_focal": Kind("error", "no lens has it at this image size; K belongs to another photograph"),
    "unusual_focal": Kind("warning", _UNUSUAL),
    # geometry: what keypoints, K, poses and points say about each other
    **dict.fromkeys(OF_GEOMETRY, Kind("error", _CONTRADICTS)),
    "k_left_behind": Kind("error", _WRONG_K),
    "size_alone": Kind("error", _WRONG_K),
    "keypoints_left": Kind("warning", "trainers do not look at keypoints, but what does will be misled by them"),
    "stray_points": Kind("error", "Gaussians start at places that the photographs contradict"),
    "flat_angles": Kind("warning", "Gaussians start at depths that are a guess"),
    "out_of_view": Kind("error", _CONTRADICTS),
    "pairs_disagree": Kind("error", _CONTRADICTS),
    # sizes
    "scaled": Kind("error", _WRONG_K, _FIELD_OF_VIEW),
    "few_pixels_off": Kind("error", _WRONG_K, _NEARLY),
    "transposed": Kind("error", _WRONG_K),
    "other_size": Kind("error", _WRONG_K),
    "mixed_sizes": Kind("error", "one K cannot be right for several sizes", _FIELD_OF_VIEW),
    "unlike_ratios": Kind(
        "error", "trainers rescale every camera by the ratio of the first photograph", _FIELD_OF_VIEW
    ),
    # files
    "no_image_folder": Kind("error", _DIES),
    "missing_image": Kind("error", _DIES),
    "photos_exchanged": Kind("error", "photographs are trained with the poses of others"),
    "other_pictures": Kind("error", "photographs are trained with the poses of others, or upside down"),
    "other_content": Kind("warning", "what a photograph does not show cannot be learnt from it"),
    "displaced": Kind("error", "every ray of these photographs is bent, and the splat blurs silently"),
    "lens_mix": Kind("error", "every ray of these photographs is bent, and the splat blurs silently"),
    "blank": Kind("warning", "what a photograph does not show cannot be learnt from it"),
    "blurred": Kind("info", "what it alone shows will be blurred in the splat"),
    "undecodable": Kind("error", _DIES),
    "unicode_form": Kind("error", "file systems compare the bytes of names, and do not find it"),
    "unreadable_mask": Kind("error", _DIES),
    "mask_size": Kind(
        "warning", "the mask is stretched over the photograph and hides other parts of it than it was made for"
    ),
    "mask_values": Kind("error", "what is darker than 128 is ignored: nothing of these photographs is trained"),
    "mask_names": Kind("warning", "a mask that no photograph finds hides nothing"),
    "mask_share": Kind("warning", "a photograph of which next to nothing counts teaches next to nothing"),
    "black_mask": Kind("warning", "a photograph of which nothing counts teaches nothing"),
    "wrong_case": Kind("error", "file systems that tell upper from lower case do not find it"),
    "empty_image": Kind("error", _DIES),
    "truncated_image": Kind("error", _DIES),
    "unreadable_image": Kind("error", _DIES),
    "cmyk": Kind("error", "its four channels are ink, not light; loaders that take three see wrong colours"),
    "sixteen_bit": Kind("warning", _LOADERS_DIFFER),
    "alpha": Kind("warning", _LOADERS_DIFFER),
    "animated": Kind("warning", "only its first frame is used"),
    "exif_orientation": Kind("warning", "the pixels fit the camera as stored; a program that obeys EXIF turns them"),
    "name_clash": Kind("warning", "programs that know photographs by their stem take one for the other"),
    "shifted_pairing": Kind(
        "warning", "programs that pair the folders by position train photographs with a neighbour's pose"
    ),
    # against the source
    "camera_drift": Kind("warning", _IN_ITSELF),
    "pose_drift": Kind("warning", _IN_ITSELF),
    "not_in_source": Kind("warning", _IN_ITSELF),
}


@dataclass(frozen=True)
class Sink:
    """Writes findings about one patch with the severity that the trainer's rules give them."""

    patch: str
    rules: TrainerRules

    def note(self, kind: str, subject: str, message: str, remedy: str) -> Finding:
        """Return a finding; its severity and its reason come from `KINDS`."""
        known = KINDS[kind]
        if known.absorbed and self.rules.absorbs_resize:
            return Finding(self.patch, "warning", kind, subject, message, remedy, known.absorbed)
        return Finding(self.patch, known.severity, kind, subject, message, remedy, known.why)
