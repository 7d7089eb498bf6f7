"""`scripts/check --changed`: which tests are about what differs."""

from __future__ import annotations

import pytest
from loaded_script import load_script

SCRIPT = load_script("tests_of_changes")


@pytest.mark.parametrize(
    ("name", "among", "not_among"),
    [
        ("splatbatch/output/retention.py", "tests/output/test_keep_better.py", "tests/scene/test_frame.py"),
        ("splatbatch/machine/protocol.py", "tests/scheduler/test_loop.py", "tests/splats/test_ply.py"),
        ("tests/testing/stereo.py", "tests/tasks/test_hold_out_of_rigs.py", "tests/tasks/test_patch_state.py"),
        ("tests/output/test_exclusive.py", "tests/output/test_exclusive.py", "tests/output/test_claims.py"),
        ("docs/failed.md", "tests/docs/test_docs.py", "tests/scene/test_frame.py"),
        ("configs/engines/ssh_workers.sh", "tests/cluster/test_ssh_workers.py", "tests/scene/test_frame.py"),
        ("splatbatch/failures/signatures.toml", "tests/failures/test_signatures.py", "tests/scene/test_frame.py"),
    ],
)
def test_tests_of_what_changed_and_of_what_imports_it(name: str, among: str, not_among: str) -> None:
    found = SCRIPT.tests_of({name})
    assert among in found
    assert not_among not in found


def test_what_no_test_is_about_has_none() -> None:
    assert SCRIPT.tests_of({"-".join(["never", "named.txt"])}) == set()
