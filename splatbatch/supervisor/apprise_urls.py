"""`python -m splatbatch.supervisor.apprise_urls`: deliver what stands on stdin to Apprise URLs; 0 if all took it.

A process of its own: URLs stay out of every command line, and a server that does not answer holds nothing up.
"""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Read {"urls": [...], "title": "...", "body": "..."} and deliver it."""
    import apprise

    message = json.load(sys.stdin)
    services = apprise.Apprise()
    known = [services.add(url) for url in message["urls"]]
    delivered = services.notify(title=message["title"], body=message["body"])
    return 0 if delivered and all(known) else 1


if __name__ == "__main__":
    sys.exit(main())
