"""A user without a home folder, as in some containers: HOME is not set, and the user is in no table of users."""

from __future__ import annotations

import pwd

import pytest


def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the user's home folder away."""

    def unknown(_: object) -> None:
        raise KeyError("uid not found")

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
