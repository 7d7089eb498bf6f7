"""Every record of an output folder: read back as it was written, and read without trust whatever stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splatbatch.files import write_json
from splatbatch.hashing import FileFact
from splatbatch.outcome import (
    Cancelled,
    Diagnosis,
    Exit,
    Exited,
    Failed,
    Killed,
    Lost,
    Made,
    NotStarted,
    Outcome,
    Splat,
    Stopped,
    TimedOut,
    Trained,
)
from splatbatch.output.attempt_folder import AttemptFolder, CachedAttemptDir
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.attempt import (
    AttemptFacts,
    ExitFacts,
    Finish,
    Go,
    GpuSample,
    Heartbeat,
    JobSpec,
    ProgressLine,
    Start,
    Then,
    TimeLimits,
    WatchSettings,
)
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.metrics import (
    EarlyStoppingRecord,
    Metrics,
    QualityFigures,
    TrainingSettings,
)
from splatbatch.output.records.process import ProcessIdentity
from splatbatch.output.records.record import TypedRecord, object_of, read_as
from splatbatch.output.records.result import Result, SplatFacts
from splatbatch.output.records.run import CancelRequest
from splatbatch.scheduler.finalize import CollectResult

EXITS: list[Exit] = [Exited(3), Killed(9), TimedOut("stall", 5.0), Cancelled("x"), NotStarted("y"), Lost("z")]
OUTCOMES: list[Outcome] = [
    Trained(Splat(Path("/a/splat.ply"), 7, 3, 30, warnings=("odd",)), ("health: x",)),
    Made(Path("/a/metrics.json")),
    Failed(Diagnosis("cuda_oom", "degrade", "lower it", ("line 3",), "train")),
    Stopped("SIGTERM"),
]
FINGERPRINT = Fingerprint("r", "i", {"training": {"seed": 1}}, {"images/a.jpg": FileFact(7, 8, "s")}, "e")
LIMITS = TimeLimits(60.0, 1.0, 5.0)
FINISH = Finish(("*.ply",), r"(\d+)", 30, ("a",), ("b",))
METRICS = {"final": {"psnr": 21.5, "images": {"a.jpg": {"psnr": 1.0}}}, "made_with": {"on": "CPU"}, "notes": ["n"]}
WHOLE: list[TypedRecord] = [
    JobSpec("k", ("a", "b"), {"X": "1"}, "GPU-1", "gpu0", True, LIMITS, {"training.seed": 2}, FINGERPRINT, True),
    JobSpec(),
    Go("GPU-1", "gpu0", {"X": "1"}, 5.0),
    Start("host", "pid:[1]", 7, "boot", 99, 5.0, "/sys/fs/cgroup/x"),
    Heartbeat(3, 8, ("8:1", "9:2")),
    *(ExitFacts(end, 1.5, 9.0, True, ("Xid",), 5, 6.0, 7, True) for end in EXITS),
    AttemptFacts(seconds=1.0, step=20, phase="done", gpu_peak_mib=900.0, own_gpu_peak_mib=800.0),
    ProgressLine(
        1.0,
        2.0,
        "train",
        5,
        20,
        0.5,
        1.5,
        100,
        900.0,
        950.0,
        20.0,
        0.5,
        0.1,
        21.0,
        22.0,
        0.6,
        23.0,
        "h",
        "w",
        5,
        1,
        True,
        30,
    ),
    GpuSample(1.0, 900, 2000, 9, 50, (7, 8), (5, None), 5),
    WatchSettings("/cwd", {"X": "1"}, {"step": "s"}, 30, "start", FINISH, 2.0, Then(("a",), FINISH), ("m",)),
    WatchSettings(),
    FINGERPRINT,
    CancelRequest(ProcessIdentity("host", "", 7, "boot", 9), ("p0",), "me"),
    QualityFigures(21.0, 0.5, 0.1, 25.0, 20.5, 0.4, 23.0, 0.6, 0.9),
    EarlyStoppingRecord(30, 18, 1.5),
    TrainingSettings("p0", {"a": 1}, ("b",), tones={"a.jpg": [0.8, 1.0, 1.2, -0.1]}),
    SplatFacts("s", 5, 6, 7),
    Metrics.from_record(METRICS),
    Result.from_record({"attempt": "attempt-02", "metrics": METRICS, "novelty": [1], **FINGERPRINT.to_record()}),
]
KINDS = sorted({type(one) for one in WHOLE} | {TrainingSettings}, key=lambda kind: kind.__name__)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("one", WHOLE, ids=lambda one: type(one).__name__)
def test_a_record_is_read_back_as_it_was_written(one: TypedRecord, tmp_path: Path) -> None:
    finite = JobSpec(limits=LIMITS) if one == JobSpec() else one  # no limit is infinite in a file
    write_json(tmp_path / "record.json", finite.to_record())
    assert type(one).read(tmp_path / "record.json") == finite


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda one: type(one).__name__)
def test_what_a_reader_says_of_an_attempt_is_read_as_the_kind_that_it_is(outcome: Outcome) -> None:
    said = json.loads(json.dumps(object_of(CollectResult(outcome, {"accepted": True}))))
    assert read_as(CollectResult, said) == CollectResult(outcome, {"accepted": True})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_record_is_read_whatever_stands_there(kind: type[TypedRecord], data: st.DataObject) -> None:
    fields = ["kind", "code", "limit", "limit_s", "pinned", *kind.__dataclass_fields__]
    record: Any = data.draw(st.dictionaries(st.sampled_from(fields), ANY_JSON) | ANY_JSON)
    one = kind.from_record(record)
    assert type(one) is kind
    if isinstance(one, Result):
        assert [type(of) for of in (one.metrics, one.held_against, one.trained_from)] == [Metrics, *[Fingerprint] * 2]


@pytest.mark.parametrize(
    "kind", [ProgressLine, GpuSample, Start, AttemptFacts, SplatFacts, QualityFigures], ids=lambda kind: kind.__name__
)
@given(value=st.sampled_from(["1", True, None, [], {}, float("nan"), float("inf"), 1e300, 1 << 80]))
def test_a_figure_that_is_no_finite_number_is_absent(kind: type[TypedRecord], value: Any) -> None:
    fields = kind.__dataclass_fields__.items()
    figures = [name for name, one in fields if str(one.type) in ("int | None", "float | None")]
    record = kind.from_record(dict.fromkeys(figures, value))
    known = {name: getattr(record, name) for name in figures}
    assert known == dict.fromkeys(known)


@pytest.mark.parametrize("tone", ["x", [1.0, 1.0], [1.0, 0.0, 1.0], [1.0, None, 1.0], [1.0, 1.0, float("nan")], {}])
def test_what_is_no_tone_is_absent(tone: Any) -> None:
    assert TrainingSettings.from_record({"tones": {"a.jpg": tone, "b.jpg": [1.0, 2.0, 3.0]}}).tones == {
        "b.jpg": [1.0, 2.0, 3.0]
    }


def test_what_another_version_knows_of_a_result_survives_when_it_is_written_anew(tmp_path: Path) -> None:
    folder = PatchFolder(tmp_path)
    written = {"attempt": "attempt-01", "novelty": {"a": 1}, "splat": {"sha256": "s"}, "files": {"x": [1, 2, ""]}}
    write_json(folder.result, written)
    result = folder.read_result()
    assert result is not None
    assert result.with_files({}).to_record() == {**written, "files": {}}
    assert result.with_fields(pinned=FINGERPRINT).with_files({}).to_record()["pinned"]["files"] == {}


def test_the_records_of_an_attempt_that_has_ended_are_opened_once(tmp_path: Path) -> None:
    ended = CachedAttemptDir(tmp_path)
    write_json(ended.exit, ExitFacts(Exited(0)).to_record())
    ended.progress.write_text(json.dumps({"phase": "done"}) + "\n")
    first = (ended.read_exit(), ended.last_progress(), ended.read_progress())
    ended.exit.unlink()
    ended.progress.unlink()
    assert (ended.read_exit(), ended.last_progress(), ended.read_progress()) == first
    assert AttemptFolder(tmp_path).read_exit() is None
