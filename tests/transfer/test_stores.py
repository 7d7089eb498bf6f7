"""What every store must keep to: a folder, sftp by a real OpenSSH server, and S3 as moto speaks it."""

from __future__ import annotations

import errno
import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from homeless import without_home
from store_sites import Site

from splatbatch.errors import ConfigError, CutOffError, StoreError, TrainerError
from splatbatch.files import fault_of_name
from splatbatch.transfer.schemes import absolute_url, open_store

BIG = os.urandom(9 << 20)


def test_what_is_written_is_read_whole_and_from_any_byte_on(place: Site, tmp_path: Path) -> None:
    store = open_store(place.url)
    (tmp_path / "big").write_bytes(BIG)
    store.write("blobs/big", tmp_path / "big")
    assert b"".join(store.read("blobs/big")) == BIG
    assert b"".join(store.read("blobs/big", len(BIG) - 7)) == BIG[-7:]


def test_a_file_is_replaced_and_listed(place: Site) -> None:
    store = open_store(place.url)
    store.write("claims/a", b"first")
    store.write("claims/a", b"2nd")
    assert (store.names("claims"), store.names("never")) == ({"a"}, set())
    assert b"".join(store.read("claims/a")) == b"2nd"


def test_what_is_not_there_is_an_error_of_its_own(place: Site) -> None:
    store = open_store(place.url)
    store.write("blobs/other", b"1")
    with pytest.raises(FileNotFoundError):
        list(store.read("blobs/none"))


def test_of_many_who_create_one_name_at_once_one_is_told_that_it_did(place: Site) -> None:
    stores = [open_store(place.url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for number in range(5):
            name = f"claims/{number}"
            tries = [pool.submit(one.write, name, f"{index}".encode(), once=True) for index, one in enumerate(stores)]
            made = [one.result() for one in tries]
            won = [index for index, is_ours in enumerate(made) if is_ours]
            assert [f"{index}".encode() for index in won] == [b"".join(stores[0].read(f"claims/{number}"))]


def test_a_write_that_is_killed_leaves_nothing_to_be_seen(place: Site, tmp_path: Path) -> None:
    store = open_store(place.url)
    store.write("blobs/whole", b"1")
    with pytest.raises((StoreError, OSError)):
        store.write("blobs/half", tmp_path / "never-there")
    assert store.names("blobs") == {"whole"}


def test_a_local_file_that_cannot_be_read_is_named_and_is_no_fault_of_the_store(place: Site, tmp_path: Path) -> None:
    """Else it would be sent again for ever."""
    store = open_store(place.url)
    (tmp_path / "blob").mkdir()
    for local in ("blob", "gone"):
        with pytest.raises(StoreError, match=rf"{local}: cannot be read \(") as told:
            store.write("blobs/folder", tmp_path / local)
        assert not isinstance(told.value, CutOffError)
    assert not store.names("blobs")


@pytest.mark.parametrize("sites_kind", ["folder", pytest.param("ssh", marks=pytest.mark.all)])
def test_a_disk_that_breaks_while_a_file_is_sent_leaves_nothing_half_sent(
    sites_kind: str, sites: dict[str, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in sites[sites_kind].environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "big").write_bytes(BIG)
    monkeypatch.setattr("splatbatch.transfer.store.open_regular", BreaksInTheMiddle)
    with pytest.raises(StoreError, match=r"big: cannot be read \(Input/output error\)") as told:
        open_store(sites[sites_kind].below("broken")).write("blobs/big", tmp_path / "big")
    kept = sites[sites_kind].kept
    assert not isinstance(told.value, CutOffError)
    assert kept is not None
    assert not [*(kept / "broken/blobs").iterdir()]


class BreaksInTheMiddle(io.FileIO):
    """A file whose disk answers with an error beyond its first bytes."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(size)


def test_several_hundred_names_are_listed(place: Site) -> None:
    store = open_store(place.url)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.write(f"claims/{number}", b"x"), range(260)))
    assert len(store.names("claims")) == 260


@pytest.mark.contract  # of `ssh -G`
def test_a_host_that_does_not_answer_may_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    for url in ("ssh://127.0.0.1:9/store", "s3://reef/night"):
        with pytest.raises(CutOffError):
            open_store(url).names("claims")


@pytest.mark.all
def test_a_host_that_takes_none_of_our_keys_is_refused_with_a_remedy(
    sites: dict[str, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(sites["ssh"].environment["HOME"])
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "known_hosts").write_text((home / ".ssh" / "known_hosts").read_text())
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreError, match="none of your ssh keys") as refused:
        open_store(sites["ssh"].url).names("claims")
    assert "~/.ssh" in refused.value.hint


@pytest.mark.all
@pytest.mark.parametrize("error", ["SFTPOpUnsupported", "SFTPFailure"])
def test_a_host_without_hard_links_gives_a_name_to_the_first_who_asks(
    sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """Its program or its disk has none; else a worker claims nothing, and waits for ever without a word."""
    asyncssh = pytest.importorskip("asyncssh")

    async def refused(*_: object) -> None:
        raise getattr(asyncssh, error)("no links")

    monkeypatch.setenv("HOME", sites["ssh"].environment["HOME"])
    monkeypatch.setattr(asyncssh.SFTPClient, "link", refused)
    store = open_store(sites["ssh"].below(f"linkless-{error}"))
    assert [store.write("claims/a", content, once=True) for content in (b"first", b"second")] == [True, False]
    assert (b"".join(store.read("claims/a")), store.names("claims")) == (b"first", {"a"})


@pytest.mark.all
def test_a_host_that_cannot_replace_a_file_is_told_what_it_lacks(
    sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncssh = pytest.importorskip("asyncssh")

    async def refused(*_: object) -> None:
        raise asyncssh.SFTPOpUnsupported("POSIX rename not supported")

    monkeypatch.setenv("HOME", sites["ssh"].environment["HOME"])
    monkeypatch.setattr(asyncssh.SFTPClient, "posix_rename", refused)
    with pytest.raises(StoreError, match="POSIX rename not supported") as told:
        open_store(sites["ssh"].below("old")).write("blobs/a", b"1")
    assert "OpenSSH" in told.value.hint
    assert not isinstance(told.value, CutOffError)
    kept = sites["ssh"].kept
    assert kept is not None
    assert not [*(kept / "old/blobs").iterdir()]


@pytest.mark.all
def test_a_bucket_that_is_not_there_is_named(sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sites["s3"].environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match="s3://lagoon/night: no such bucket"):
        open_store("s3://lagoon/night").write("claims/a", b"1")


@pytest.mark.parametrize("url", ["ssh://reef:abc/x", "ssh://reef:99999/x", "ssh://[reef/x", "s3://[reef/x"])
def test_a_host_or_port_that_cannot_be_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(ConfigError, match="the host or port of the URL is not valid") as refused:
        open_store(url)
    assert "name:port" in refused.value.hint


@pytest.mark.parametrize("url", ["ssh://me:pw@host/path", "s3://key:pw@bucket/prefix"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(url)
    assert "pw" not in refused.value.message


def test_a_missing_library_is_told_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "splatbatch.transfer.s3", raising=False)  # an earlier test has loaded it
    with pytest.raises(TrainerError, match="need the Python package obstore") as refused:
        open_store("s3://reef/night")
    assert refused.value.hint == "Install it: pip install 'splatbatch[stores]'"


def test_only_a_folder_is_anchored_and_names_lead_nowhere_outside(tmp_path: Path) -> None:
    assert absolute_url("store", tmp_path) == str(tmp_path / "store")
    assert absolute_url("file://store", tmp_path) == str(tmp_path / "store")
    assert absolute_url("file:///mnt/store", tmp_path) == "/mnt/store"
    assert absolute_url("s3://reef/night", tmp_path) == "s3://reef/night"
    assert [not fault_of_name(one) for one in ("images/left/a.jpg", "../a", "a/../../b", "/etc/a", "a//b")] == [
        True, False, False, False, False,
    ]  # fmt: skip


def test_a_store_in_a_home_folder_that_is_not_known_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_home(monkeypatch)
    for url in ("~/store", "file://~/store", "~nobody-here/store"):
        with pytest.raises(ConfigError, match="home folder") as refused:
            absolute_url(url, tmp_path)
        assert url in refused.value.message
