"""Known failures of files: downloads, disks and shares that do not answer, files that are missing or cut."""

from __future__ import annotations

from splatbatch.failures.row import Row, Words

IMAGE = r"\.(jpe?g|png|tiff?|exr|webp|heic|bmp)\b"

NETWORK = (
    Row(
        "download_failed",
        "fail",
        "A download is refused for good (certificate, address or permission): fetch the file beforehand.",
        Words(
            r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|Access to model \S+ is restricted",
            r"HTTP ?Error:? 40[0134]|\b40[134] Client Error|GatedRepoError|RepositoryNotFoundError",
        ),
        scope="optional",
    ),
    Row(
        "download_failed",
        "retry",
        "A download or a server could not be reached: tried again; for batches fetch files beforehand and switch"
        " online loggers off.",
        Words(
            r"\bURLError\b|urlopen error|HTTP ?Error:? (429|5\d\d)|\b(429|5\d\d) (Client|Server) Error",
            r"(requests|urllib3|http\.client|httpx|aiohttp)[\w.]*\.(\w*Error|\w*Timeout|IncompleteRead|\w*Disconnected)\b",
            r"Max retries exceeded with url|Failed to establish a new connection|LocalEntryNotFoundError",
            r"\bSSLEOFError|UNEXPECTED_EOF_WHILE_READING|Network is unreachable|^\s*ConnectionError:",
            r"Connection (reset by peer|timed out|aborted)|Remote end closed connection|Read timed out",
            r"name resolution|resolve host|getaddrinfo failed|Name or service not known|couldn't connect to 'https?://",
            r"\[WinError (100(51|53|54|60|61)|1100[1-4])\]",
            r"Run initialization has timed out|wandb\.errors\.\w*Comm\w*",
            r"Cannot retrieve the public link|Too many users have viewed",
            r"fatal: unable to access|RPC failed; curl|CondaHTTPError|CONNECTION FAILED for url",
            # Any library's own words, where they are an exception.
            r"^\s*(\w+\.)*(\w*(Connection|Connect|Proxy|Endpoint)\w*Error|\w*Timeout(Error)?|\w*Unavailable"
            r"|DeadlineExceeded|TooManyRequests): ",
            r"^\s*[\w.]*(Error|Exception|Timeout): [^\n]*"
            r"\b(connection|server|host|download|request|proxy|network)\b[^\n]{0,60}"
            r"\b(timed? ?out|unreachable|unavailable|dropped|overloaded)\b",
        ),
        scope="optional",
    ),
    Row(
        "io_error",
        "retry",
        "Reading from the disk or the share failed: tried again; if it repeats, copy the data to a local disk.",
        Words(
            r"\[Errno (5|52|61|70|74|107|108|112|116|117|121)\]|Communication error on send|Input/output error",
            r"\bdisk I/O error\b",  # SQLite's, of COLMAP's database
            r"Stale (NFS )?file handle|\bES?TALE\b|\bEIO\b",
            r"Transport endpoint is not connected|Remote I/O error|Host is down|Structure needs cleaning",
            r"\[WinError (21|23|53|55|59|64|1117|1167)\]",
            r"Eingabe-/Ausgabefehler|Erreur d'entrée/sortie|输入/输出错误|Error de entrada/salida",
        ),
    ),
)

# Weak: often a consequence of a failure before them.
FILES = (
    Row(
        "corrupt_cache",
        "degrade",
        "A cached or downloaded file is cut: delete it and run again.",
        Words(
            r"PytorchStreamReader failed|unexpected EOF, expected \d+ more bytes|invalid hash value|invalid load key",
            r"Invalid magic number; corrupt|BadGzipFile|CRC check failed|tarfile\.ReadError|zlib\.error",
            r"BadZipFile|UnpicklingError|EOFError: Ran out of input",
            r"Error while deserializing header|HeaderTooLarge|file signature not found",
            r"truncated file: eof|file too short",
        ),
        strength="weak",
    ),
    Row(
        "missing_image",
        "fail",
        "A photograph of the scene is missing or cannot be loaded: fetch the complete image folder.",
        Words(
            rf"(No such file|does not exist|not found|(can't|cannot|unable to|could not) (open|read))[^\n]*{IMAGE}",
            rf"{IMAGE}[^\n]*(does not exist|not found|missing)",
            r"No such file[^\n]*[/\\](images(_\d+)?|input|rgb|frames|masks?)([/\\][^\n'\"]*)?['\"]",
            r"image[s_ ]?(folder|dir\w*|path|file)?s?\b[^\n]*(does not exist|not found|is empty)|can't fopen",
            r"!_src\.empty\(\)|imread_[^\n]*can't open|No images? (files? )?(were |was )?found|failed to open image",
            r"'NoneType' object has no attribute '(shape|astype|ndim|dtype)'",  # what cv2.imread() returns
        ),
        strength="weak",
    ),
    Row(
        "missing_file",
        "fail",
        "A file of an earlier step is missing: run (and check) that step first.",
        Words(
            r"FileNotFoundError|No such file or directory|\[WinError [23]\]|does not exist",
            r"找不到指定的(文件|路径)",
            r"angegebene Datei nicht finden|angegebenen Pfad nicht|est introuvable|can't find the path",
            r"(cannot|can't|could not|couldn't|unable to) (find|open|locate)[^\n]*\b(file|folder|directory|path)",
            r"(checkpoint|weights?|ckpt|file|folder|directory)\b[^\n]{0,60}\b(not found|is missing)|No checkpoints?\b",
        ),
        strength="weak",
    ),
)
