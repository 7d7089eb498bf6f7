"""Known failures of a scene and of its training: COLMAP, photographs, settings, empty or diverging Gaussians."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words
from splatbatch.failures.rules.files import IMAGE

_BROKEN_IMAGE = "A photograph cannot be read: replace that image."

SCENE = (
    Row(
        "corrupt_image",
        "fail",
        _BROKEN_IMAGE,
        Words(r"struct\.error"),
        also=Words(r"PIL[/\\.]"),
    ),
    Row(
        "colmap_parse",
        "fail",
        "The reconstruction's files cannot be read: they are cut, broken or of another version; export them again.",
        Words(
            r"struct\.error: unpack|_Map_base::at|(unordered_)?map::at|Camera model does not exist",
            r"Ply(Element|Header)?ParseError|no field of name",
            r"json\.exception\.parse_error|JSONDecodeError",
            r"intr = cam_intrinsics\[extr\.camera_id\]|\bcam = self\.cameras\[|Invalid format in \w+\.txt",
            r"KeyError: '(frames|file_path|transform_matrix|fl_[xy]|c[xy]|w|h|camera_angle_[xy])'",
        ),
    ),
    Row(
        "colmap_parse",
        "fail",
        "The reconstruction's text files cannot be read: export them again.",
        Words(r"invalid literal for int|could not convert string to float|list index out of range|codec can't decode"),
        also=Words(r"colmap_loader|read_(ex|in)trinsics|read_(points3D|images|cameras)|(cameras|images|points3D)\.txt"),
    ),
    Row(
        "missing_colmap",
        "fail",
        "No COLMAP model here: give the folder that holds sparse/ (and images/).",
        Words(
            r"Could not recognize scene type|Invalid colmap model|Invalid project folder",
            r"(data|dataset|scene|source)[ _](directory|path|folder|dir)\b[^\n]* (does not exist|not found)",
            r"Check failed: Exists(Dir|File|Path)",
            r"No such file[^\n]*[/\\](sparse|colmap)[/\\'\"](?![^\n]*\.(jpe?g|png)\b)",
            r"No such file[^\n]*((cameras|images|points3D)\.(bin|txt|ply)|transforms(_train|_test)?\.json)",
            r"(COLMAP|sparse)(?![^\n]*\.(jpe?g|png)\b)[^\n]*(does not exist|not found|missing)",
            r"(cameras|points3D|images\.(bin|txt))[^\n]* do(es)? not exist",
            r"(cannot|can't|could not|unable to) (find|recognize|detect)[^\n]{0,40}"
            r"\b(project|dataset|scene)\b[^\n]*colmap",
            r"(\bNo|\bNeither|(can|could)(not|n't| not) (find|open|load|read)|(failed|unable) to \w+)\b[^\n]*"
            r"((cameras|images|points3D)\.(bin|txt)|transforms\S*\.json|cameras\.sfm)",
            r"(cameras|images|points3D)\.(bin|txt)[^\n]*(not found|missing)",
            r"transforms\S*\.json[^\n]*(not found|missing)",
            r"\bNeither\b[^\n]*\b(sparse|colmap|transforms)\b",
            r"variable 'scene_info'|No COLMAP (model|reconstruction|data)\b",
        ),
    ),
    Row(
        "unsupported_camera_model",
        "fail",
        "The trainer cannot use this camera model: undistort to PINHOLE first (colmap image_undistorter).",
        Words(
            r"camera model not handled|only undistorted datasets|please undistort",
            r"Check failed: camera\w*[.>-]+\s?ModelId\(\)",
            r"(Unsupported|Unknown|Unrecognized|Invalid) (COLMAP )?camera (model|type)",
            r"camera (model|type)[^\n]{0,60}(not (supported|implemented|recognized)|distort)",
            r"(only[^\n]{0,40}|assumes )PINHOLE|Only perspective and fisheye cameras are supported",
        ),
    ),
    Row(
        "corrupt_image",
        "fail",
        _BROKEN_IMAGE,
        Words(
            r"image file is truncated|broken data stream|unrecognized data stream|Truncated File Read",
            r"cannot identify image file|UnidentifiedImageError|Unsupported image file|BITMAP_ERROR|!buf\.empty\(\)",
            r"decoder error -\d|Premature end of JPEG|unknown image type|bad png|could not decode image",
            r"DecompressionBomb",
            r"Could not load image(?![^\n]*(fopen|exist|found|No such))|not a (TIFF|valid image)",
            r"Not a JPEG file|bad jpeg|Error decoding JPEG|broken PNG|PNG input buffer is incomplete|libpng error",
            rf"\bdecod(e|er|ing)\b[^\n]{{0,40}}\bfail[^\n]*{IMAGE}|{IMAGE}[^\n]*\bfail[^\n]{{0,20}}\bdecode",
            r"Failed to (read|decode|load) (the )?image( file)?( format)?\b|\bDecodingError\b|ImageError\b",
        ),
        unless=Words(r"illegal memory access"),  # decoders fail on the same GPU after it
    ),
    Row(
        "colmap_failed",
        "fail",
        "COLMAP cannot use a GPU or a display here (a 'GPU memory' message misleads): match on the CPU.",
        Words(
            r"SiftGPU not fully supported|Cannot use Sift GPU|Failed to create feature (matcher|extractor)",
            r"QOpenGLContext::create|could not connect to display|Could not load the Qt platform plugin",
            r"Check failed: context_\.create|Failed to create OpenGL context|requires CUDA, which is not available",
        ),
        scope="end",
    ),
    Row(
        "colmap_failed",
        "fail",
        "COLMAP found no reconstruction: the photographs overlap too little, or matching failed.",
        Words(
            r"failed to create sparse model",
            r"COLMAP only found poses|No images with matches|insufficient size|\b\d images registered",
            r"Could not reconstruct any model",
            r"(imgs2poses|colmap2poses|Post-colmap)[^\n]*\n(?:[^\n]*\n){0,9}[^\n]*(out of (range|bounds))",
            r"Failed to solve (bundle adjustment|global positioning|rotation averaging)",
            r"correct camera poses for current points cannot be accessed",  # LLFF
            r"mismatch between[^\n]{0,20} (imgs|images)[^\n]{0,30} poses",
        ),
        scope="end",
    ),
    Row(
        "colmap_failed",
        "fail",
        "COLMAP found no pair of photographs to begin with: they overlap too little, or matching failed.",
        Words(r"No good initial image pair|Could not find (a )?good initial"),
        unless=Words(r"Keeping successful reconstruction"),  # it begins again with what it could not register
        scope="end",
    ),
    Row(
        "zero_gaussians",
        "fail",
        "The initial point cloud is empty: check points3D; no further attempt can help.",
        Words(
            r"Number of points at initiali[sz]ation\s*:\s*[01]\b|No (3D )?points (found|in)\b",
            r"cameras? sees? (no|at least one) gaussian",
            r"(point cloud|points3D)[^\n]{0,40}\b(is empty|has (0|no) points)",
            r"(Loaded|Reading|Initiali[sz]\w+( with)?) 0 (points|gaussians|splats)\b",
            r"Expected n_neighbors <= n_samples|Found array with 0 sample",
        ),
        lasting=True,
        scope="end",
    ),
    Row(
        "no_training_cameras",
        "fail",
        "No camera belongs to this patch: merge it with a neighbour, or leave it out.",
        Words(
            r"No training (data|images|cameras|views) (was |were )?(found|available)",
            r"(Train(ing)? (cameras|images|views)|train_cameras|Number of train\w* \w+)\s*[:=]\s*0\b",
            r"empty range (for|in) rand|choose from an empty sequence|pop from empty list",
            r"num_samples should be a positive integer value, but got num_samples=0",
            r"No (data|frames) (was |were )?found in (the )?(dataset|split)",
            r"need at least one array to (concatenate|stack)|non-empty (TensorList|list of Tensors)",
        ),
        lasting=True,
        scope="end",
    ),
)

NUMBERS = (
    Row(
        "zero_gaussians",
        "fail",
        "Nothing was rendered: no Gaussian is in view. Check poses and scale; in mid-run, prune less.",
        Words(r"does not require grad and does not have a grad_fn|assert \(?self\.num_tiles_hit > 0"),
        midrun="degrade",
    ),
    Row(
        "zero_gaussians",
        "fail",
        "No Gaussian was to be split, and this torch cannot draw no samples: install the torch the trainer asks for.",
        Words(r"torch\.normal\(mean=means|\bstds\b"),
        also=Words(r"numel\(\) == 0|size=\(0, 3\)|Size\(\[0, 3\]\)"),
    ),
    Row(
        "zero_gaussians",
        "degrade",
        "All Gaussians were pruned: weaker pruning, another random start; check scene extent and poses.",
        Words(
            r"got \[0, [\d, ]+\] but expected shape|numel\(\) == 0|reshape tensor of 0 elements",
            r"for (dimension|axis)( \d)? with size 0|n_sample <= 0|sum of probabilities <= 0",
            r"dimension 0 with size 0|zero-size array to reduction|Expected reduction dim|must be non-empty",
            r"\b(0|no) (gaussians|points|splats) (left|remain)|all gaussians (were|have been) pruned",
        ),
    ),
    Row(
        "bad_config",
        "fail",
        "The rasterizer was compiled for another number of channels: rebuild it with the right NUM_CHANNELS.",
        Words(r"invalid gradient at index \d+ - got \["),
    ),
    Row(
        "tensor_limit",
        "degrade",
        "A tensor is too large for torch: cap the Gaussians below 16.7 million, or lower the resolution.",
        Words(
            r"input tensor is too large|content is larger than 2 ?GB|number of categories cannot exceed 2\^24",
            r"larger than 2\^3[12]|exceeds? 2\^3[12]|expected to be smaller than 2147483647",
            r"32[- ]bit index math|more than INT_MAX elements|canUse32BitIndexMath",
        ),
    ),
    Row(
        "nan_loss",
        "degrade",
        "Training diverged (NaN): lower learning rate, another random start; then check poses and near plane.",
        Words(
            r"returned nan values|numel: integer multiplication overflow|contains either `inf`, `nan`",
            r"nan or inf (was |were )?(found|detected|encountered)|\bassert[^\n]*\bis(nan|finite|inf)\(",
            r"\bloss['\"]?\s*(is|=|:|became|was)?\s*['\"]?(nan|inf|infinite|non-finite)\b",
            r"\b(Loss|gradient|value|scale|mean|weight|parameter|grad)\w*[^\n]{0,30} (is|are|became|contains?|has) NaN",
            r"\b(nan|non-finite|infinite) (loss|gradient|value)s?\b|\bNaNs? (in|found|detected|encountered)\b",
            r"(found|encountered|detected|contains?) (a )?(nan|inf)s?\b",
            r"convert float NaN to integer|contained non-finite|elements of std >= 0",
            r"linalg[.\w]*: [^\n]*(converge|singular|ill-conditioned)|SVD did not converge|satisfy the constraint",
        ),
    ),
)
