from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import invoke
from fake_batch import FakeBatch
from rich.console import Console
from scenes import FOV, HEIGHT, OURS, WIDTH, MadeScene, pinhole
from whole_scene import WholeScene

from splatbatch.config import Evaluation
from splatbatch.output.records.record import in_json
from splatbatch.scene import holdout
from splatbatch.scene.audit.audit import Audit, AuditExtent, audit_patches
from splatbatch.scene.audit.table import render
from splatbatch.scene.colmap.types import Image
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos import headers


def printed(audit: Audit) -> str:
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(*render(audit), sep="\n")
    return capture.get()


def cut_patch(scene: MadeScene, tmp_path: Path) -> MadeScene:
    """Return a patch cut from the scene, with images and cameras of its own to spoil."""
    patch = MadeScene(tmp_path / "cut", list(scene.cameras), list(scene.images))
    return patch.write()


def test_a_broken_patch_does_not_keep_the_others_from_being_audited(scene: MadeScene) -> None:
    lost = replace(scene.patch("p1"), sparse=scene.root / "nowhere")
    audit = audit_patches([lost, scene.patch("p2")], None, OURS)
    assert audit.bad_patches() == ("p1",)
    assert [row.patch for row in audit.rows] == ["p2"]


def held_out(scene: MadeScene, num: int) -> Evaluation:
    """Return settings that hold out the first so many photographs by a list."""
    names = scene.root / "held-out.txt"
    names.write_text("\n".join(image.name for image in scene.images[:num]))
    return Evaluation(holdout_list=names)


def test_a_list_holds_out_names_with_odd_blanks(tmp_path: Path) -> None:
    names = [" lead.jpg", "next\x85line.jpg", "usual.jpg"]
    (tmp_path / "list.txt").write_bytes("\r\n".join([*names[:2], "  usual.jpg "]).encode())
    images = [Image(number, name, 1, (1, 0, 0, 0), (0, 0, 0)) for number, name in enumerate(names)]
    patch = Patch("p0", tmp_path, tmp_path)
    assert holdout.choose_holdout(patch, Evaluation(holdout_list=tmp_path / "list.txt"), images) == tuple(sorted(names))


def test_what_is_left_to_train_from_is_counted_by_the_list_that_holds_out(scene: MadeScene) -> None:
    listed = {"p0": held_out(scene, 7)}
    (finding,) = audit_patches([scene.patch()], None, OURS, AuditExtent(evaluations=listed)).findings
    assert (finding.kind, finding.message) == (
        "too_few_images",
        "8 images, of which 7 held out: 1 left to train from",
    )


def test_a_list_that_names_no_photograph_is_told(scene: MadeScene) -> None:
    (scene.root / "held-out.txt").write_text("01\n03\n")
    extent = AuditExtent(evaluations={"p0": Evaluation(holdout_list=scene.root / "held-out.txt")})
    (finding,) = audit_patches([scene.patch()], None, OURS, extent).findings
    assert (finding.kind, finding.severity) == ("few_images", "warning")
    assert "held-out.txt names none of them" in finding.message
    assert "01.jpg" in finding.remedy


def test_an_empty_folder_of_masks_is_told(scene: MadeScene) -> None:
    (scene.root / "masks").mkdir()
    (finding,) = audit_patches([replace(scene.patch(), masks=scene.root / "masks")], None, OURS).findings
    assert (finding.kind, finding.message) == ("mask_names", "holds no masks")


def test_an_image_that_stands_twice_is_not_said_to_be_another_photograph(caliterra: Path, tmp_path: Path) -> None:
    whole = WholeScene.read(caliterra / "sparse/0")
    whole.images[1] = replace(whole.images[1], name=whole.images[0].name)
    patch = replace(whole.write(tmp_path), images=caliterra / "images")
    assert [one.kind for one in audit_patches([patch], None, OURS).findings] == ["duplicate_name"]


def test_what_a_list_holds_out_of_few_images_is_not_too_little(scene: MadeScene, tmp_path: Path) -> None:
    small = MadeScene(tmp_path / "small", list(scene.cameras), scene.images[:5]).write()
    assert [one.kind for one in small.audit().findings] == ["few_images"]
    assert (
        audit_patches([small.patch()], None, OURS, AuditExtent(evaluations={"p0": held_out(small, 2)})).findings == ()
    )


def test_of_a_patch_of_a_partition_what_that_holds_out_is_counted(
    scene: MadeScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = frozenset(image.name for image in scene.images[:7])
    monkeypatch.setattr(holdout, "read_partition", lambda _: SimpleNamespace(test=test))
    (finding,) = audit_patches([replace(scene.patch(), partition=tmp_path / "partition.json")], None, OURS).findings
    assert finding.message == "8 images, of which 7 held out: 1 left to train from"


def test_each_patch_is_audited_by_its_own_hold_out(batch: FakeBatch) -> None:
    batch.make("p0", "p1")
    (batch.folder / "held-out.txt").write_text("\n".join(f"img{number}.png" for number in range(8)))
    batch.change(patches={"p1": {"evaluation": {"holdout_list": "held-out.txt"}}})
    found = json.loads(invoke("verify-dims", "--json", batch=batch).out)["findings"]
    assert {(one["patch"], one["kind"]) for one in found if one["severity"] == "error"} == {("p1", "too_few_images")}


def test_old_cameras_of_a_patch_have_drifted_from_the_source(scene: MadeScene, tmp_path: Path) -> None:
    patch = cut_patch(scene, tmp_path)
    patch.cameras = [replace(pinhole(), params=(86.0, 87.0, 48.0, 36.0))]
    patch.write_model()
    (finding,) = patch.audit(source=scene.root).findings
    assert (finding.kind, finding.severity, finding.subject) == ("camera_drift", "warning", "camera 1")


def test_moved_poses_of_a_patch_have_drifted_from_the_source(scene: MadeScene, tmp_path: Path) -> None:
    patch = cut_patch(scene, tmp_path)
    patch.images[2] = replace(patch.images[2], translation=(0.5, 0.0, 0.0))
    patch.write_model()
    (finding,) = patch.audit(source=scene.root).findings
    assert (finding.kind, finding.severity, finding.subject) == ("pose_drift", "warning", "03.jpg")


def test_a_sign_of_the_quaternion_is_no_drift(scene: MadeScene, tmp_path: Path) -> None:
    patch = cut_patch(scene, tmp_path)
    patch.images = [replace(image, quat=tuple(-value for value in image.quat)) for image in patch.images]
    patch.write_model()
    assert patch.audit(source=scene.root).findings == ()


def test_an_image_that_the_source_lacks_is_named(scene: MadeScene, tmp_path: Path) -> None:
    patch = cut_patch(scene, tmp_path)
    patch.images[2] = replace(patch.images[2], name="new.jpg")
    patch.write()
    (finding,) = patch.audit(source=scene.root).findings
    assert (finding.kind, finding.subject) == ("not_in_source", "new.jpg")


def test_the_source_is_audited_but_is_no_bad_patch(scene: MadeScene, tmp_path: Path) -> None:
    patch = cut_patch(scene, tmp_path)
    scene.photograph("03.jpg", (50, 72))
    audit = patch.audit(source=scene.root)
    assert {finding.patch for finding in audit.errors()} == {"source"}
    assert audit.bad_patches() == ()
    assert audit.exit_code() == 3


def test_a_broken_source_is_a_finding(scene: MadeScene, tmp_path: Path) -> None:
    (finding,) = scene.audit(source=tmp_path / "no-source").findings
    assert (finding.patch, finding.kind) == ("source", "missing_model")


def test_patches_that_share_photographs_read_them_once(scene: MadeScene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    read = headers.read_known
    monkeypatch.setattr(headers, "read_known", lambda path, status: asked.append(path) or read(path, status))
    audit_patches([scene.patch("p1"), scene.patch("p2")], scene.root, OURS)
    assert len(asked) == len(set(asked)) == 8


def test_a_second_run_reads_no_photograph_but_those_that_changed(
    scene: MadeScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, asked = tmp_path / "cache/headers.json", []
    scene.audit(cache=cache)
    read = headers.read_known
    monkeypatch.setattr(headers, "read_known", lambda path, status: asked.append(path) or read(path, status))
    scene.photograph("03.jpg", (48, 36))
    audit = scene.audit(cache=cache)
    assert [Path(path).name for path in asked] == ["03.jpg"]
    assert {finding.subject for finding in audit.errors()} == {"camera 1", "03.jpg"}


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 1, "photos": {"x": [1, 2]}}', '{"version": 99}', "\x00"])
def test_a_corrupt_cache_is_ignored(scene: MadeScene, tmp_path: Path, content: str) -> None:
    cache = tmp_path / "headers.json"
    cache.write_text(content)
    assert scene.audit(cache=cache).findings == ()


def test_a_cache_that_cannot_be_written_is_no_error(scene: MadeScene) -> None:
    assert scene.audit(cache=scene.photographs / "01.jpg/headers.json").findings == ()


def test_the_record_is_json_and_counts_what_it_lists(scene: MadeScene) -> None:
    scene.photograph("03.jpg", (48, 36))
    record = json.loads(json.dumps(in_json(scene.audit().facts())))
    assert record["bad_patches"] == ["p0"]
    assert record["num_errors"] == len(record["findings"]) == 2
    assert record["cameras"][0]["sizes"] == [[[WIDTH, HEIGHT], 7], [[48, 36], 1]]


def test_the_table_counts_sizes_caps_details_and_sums_up(scene: MadeScene) -> None:
    scene.images = [replace(scene.images[0], id=i, name=f"{i:03d}.jpg") for i in range(1, 46)]
    scene.write_model()
    for image in scene.images:
        scene.photograph(image.name, (48, 36))
    text = printed(scene.audit())
    assert "45 x 48x36" in text
    assert text.count("images_2, a half") == 8
    assert "… and 37 more" in text
    assert "1 patch, 45 photographs audited for gsplat: 45 errors, 0 warnings in p0" in text


def test_names_are_printed_as_they_are_and_never_as_markup_or_escapes(scene: MadeScene) -> None:
    scene.images[0] = replace(scene.images[0], name="[red]a[/b]\x1b[31m.jpg")
    scene.write_model()
    text = printed(scene.audit())
    assert "[red]a[/b]\\x1b[31m.jpg: no such file" in text


def test_subfolders_are_prefixes_of_their_camera(scene: MadeScene) -> None:
    scene.images = [replace(image, name=f"left/{image.name}") for image in scene.images]
    scene.write()
    audit = scene.audit()
    assert audit.rows[0].prefixes == ("left",)
    assert audit.findings == ()


def test_a_folder_in_wrong_case_is_told_from_a_missing_one(scene: MadeScene) -> None:
    scene.images = [replace(image, name=f"Left/{image.name}") for image in scene.images]
    scene.write()
    (scene.photographs / "Left").rename(scene.photographs / "left")
    assert "is called left/01.jpg" in scene.audit().findings[0].message


def test_the_trainer_decides_which_model_is_too_much(scene: MadeScene) -> None:
    scene.cameras = [replace(pinhole(), model="SIMPLE_RADIAL", params=(86.0, 48.0, 36.0, 0.01))]
    scene.write_model()
    takes_it = replace(FOV, camera_models=frozenset({"SIMPLE_RADIAL"}))
    assert [finding.kind for finding in scene.audit().findings] == ["unsupported_model"]
    assert scene.audit(takes_it).findings == ()


@pytest.mark.parametrize(("k", "kinds"), [(0.0, []), (0.01, ["distorted"]), (-3.0, ["unsupported_model"])])
def test_a_trainer_that_undistorts_takes_what_a_pinhole_can_show(scene: MadeScene, k: float, kinds: list[str]) -> None:
    scene.cameras = [replace(pinhole(), model="SIMPLE_RADIAL", params=(86.0, 48.0, 36.0, k))]
    scene.write_model()
    audit = scene.audit(replace(OURS, undistorts=frozenset({"SIMPLE_RADIAL"})))
    assert [finding.kind for finding in audit.findings] == kinds
    assert bool(audit.errors()) == (kinds == ["unsupported_model"])


def test_a_copy_of_two_photographs_from_two_folders_is_a_clash(scene: MadeScene) -> None:
    scene.images = [replace(scene.images[0], id=i, name=f"{side}/1.jpg") for i, side in enumerate(["l", "r"], 1)]
    shutil.rmtree(scene.photographs)
    scene.write()
    (scene.root / "images_2").mkdir()
    shutil.copy(scene.photographs / "l/1.jpg", scene.root / "images_2/1.jpg")
    assert "images_2/1" in {finding.subject for finding in scene.audit().findings if finding.kind == "name_clash"}


def test_a_folder_of_photographs_that_is_a_link_in_a_circle_is_a_finding(scene: MadeScene) -> None:
    shutil.rmtree(scene.photographs)
    scene.photographs.symlink_to(scene.photographs.name)
    assert scene.audit().errors()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(scene: MadeScene) -> None:
    (scene.photographs / "03.jpg").chmod(0)
    (scene.sparse / "cameras.bin").chmod(0)
    assert "no permission" in scene.audit().findings[0].message


def test_real_patches_are_clean(caliterra: Path) -> None:
    from splatbatch.scene.patches import Patch

    patches = [Patch(name, caliterra / f"patches/{name}/sparse/0", caliterra / "images") for name in ("p0", "p2")]
    audit = audit_patches(patches, caliterra, OURS)
    assert audit.findings == ()
    assert [row.num_images for row in audit.rows] == [41, 24, 75]
