"""`python -m splatbatch.supervisor.apprise_urls`: send a message from stdin to Apprise URLs; exit 0 if all accept it.

The program is a process of its own, so that URLs stay out of command lines and a silent server can be cut off.
"""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Read {"urls": [...], "title": "...", "body": "..."} from stdin and send the message; return the exit code.

    0: all URLs are valid and all services have accepted the message; else 1.

    Raises:
        ValueError: stdin holds no JSON.
        KeyError: a key is missing.
        ImportError: Apprise is not installed.
    """
    import apprise

    message = json.load(sys.stdin)
    services = apprise.Apprise()
    known = [services.add(url) for url in message["urls"]]
    delivered = services.notify(title=message["title"], body=message["body"])
    return 0 if delivered and all(known) else 1


if __name__ == "__main__":
    sys.exit(main())
