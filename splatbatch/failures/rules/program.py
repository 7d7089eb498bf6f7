"""Known failures of what meets in a training: settings, sizes, package versions, and faults of the trainer itself."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words

SETTINGS = (
    Row(
        "dims_mismatch",
        "fail",
        "Images and intrinsics (or images among themselves) differ in size: run verify-dims.",
        Words(
            r"size of tensor a \(\d+\) must match the size of tensor b|Sizes of tensors must match",
            r"expanded size of the tensor \(\d+\) must match|stack expects each tensor to be equal size",
            r"operands could not be broadcast together|shape of the mask \[\d+, \d+",
            r"input arrays must have the same shape|Input images must have the same dimensions",
            r"CAMERA_(SINGLE|EXIST)_DIM_ERROR|images have different dimensions",
            r"Check failed: distorted_camera\.(Width|Height)",  # COLMAP's undistorter
            r"shape '\[[\d, -]+\]' is invalid for input of size|could not broadcast input array",
            r"shapes? [^\n]{0,160}\b(mismatch|not (match|equal|aligned)|cannot be multiplied)|shape mismatch",
            r"\b(expected|must|should|need)\b[^\n]{0,30} the same (shape|size)|should contain \d+ elements",
            r"(image|mask|depth)[^\n]{0,40}(size|dimension|shape|resolution)[^\n]{0,30}(mismatch|not match|differ)",
        ),
    ),
    Row(
        "bad_config",
        "fail",
        "The command line or the configuration is wrong: correct it.",
        Words(
            r"error: (unrecognized arguments|argument |the following arguments are required|ambiguous option)",
            r"invalid choice:|expected (one|at least one) argument|unrecogni[sz]ed (options?|arguments?)",
            r"No such option|Missing option|unexpected extra argument|Failed to parse options",
            r"PermissionError|Permission denied|Read-only file system|FileExistsError|(IsA|NotA)DirectoryError",
            r"^Error: (Invalid value|No such (option|command)|Missing)|Parsing error|no matching subcommand",
            r"Required options|unknown command line flag|Flag could not be matched|Option .{1,40} does not exist",
            r"^[\w.-]+\.py: error: |\bInvalid value for ['\"]?--?\w|api_key not configured|No API key configured",
            r"the option '[^']*' is required|(Namespace|GroupParams|Config\w*|DictConfig)' object has no attribute",
            r"omegaconf\.errors|hydra\.errors|Could not override|yaml\.(scanner|parser)|ConfigAttributeError",
        ),
    ),
)

# Weak: often a consequence of a failure before them.
PROGRAM = (
    Row(
        "bad_config",
        "fail",
        "A checkpoint or a name belongs to other settings than these: give those it was made with.",
        Words(
            r"size mismatch for \w|loading state_dict|key\(s\) in state_dict|loaded state dict contains",
            r"KeyError: [^\n]*(registry|registered)|Unsupported value|not a valid (choice|option|value)",
        ),
        strength="weak",
    ),
    Row(
        "colmap_failed",
        "fail",
        "COLMAP failed: see its own message above.",
        Words(
            r"(Feature extraction|Feature matching|Mapper|Image undistorter|Undistortion) failed",
            r"FATAL: command failed|Error running command: (colmap|glomap)",
            r"SQLite error|max_num_consecutive_invalid_steps",
            r"\w\.(cc|h):\d+\] +Check failed",
        ),
        strength="weak",
    ),
    Row(
        "missing_dependency",
        "fail",
        "Two packages do not fit each other: install the versions the trainer asks for.",
        Words(
            r"compiled using NumPy 1\.x|_ARRAY_API not found",
            r"\bvalues to unpack\b|^\s*TypeError: [^\n]*(unexpected keyword|missing \d+ required|positional argument)",
            r"^\s*AttributeError: (?!'(NoneType|list|str|int|float|tuple|dict)')[^\n]* has no attribute",
        ),
        strength="weak",
    ),
)

# Weakest of all: what is left when nothing hints at more.
REST = (
    Row(
        "program_bug",
        "fail",
        "The trainer itself has a fault (or its versions do not fit): report it with the lines quoted.",
        Words(
            r"^\s*(\w+\.)*(Name|Type|Attribute|Key|Index|UnboundLocal|Syntax|Indentation|NotImplemented|ZeroDivision"
            r"|Value|Assertion|Recursion)Error\b",
            r"tensors to be on the same device|expected scalar type",
            r"\bpanicked at\b",
            r"on a `None` value|index out of bounds: the len is|attempt to \w+ with overflow|unreachable code",
            r"finished reduction in the prior iteration|modified by an inplace operation",
            r"backward through the graph a second time",
            r"CUDA error: invalid argument|Cannot re-initialize CUDA in forked subprocess",
        ),
        strength="last",
    ),
    Row(
        "interrupted",
        "retry",
        "A person or another program interrupted the run: run again.",
        Words(r"KeyboardInterrupt|\^C|^\s*Terminated\b|Signals\.SIGTERM"),
        strength="last",
    ),
)
