"""The GPUs as NVML sees them, also where there are none; when the next attempt may start on one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from splatbatch.config import Cooldown
from splatbatch.machine import gpu
from splatbatch.machine.protocol import Slot
from splatbatch.machine.slots import SlotGate, Slots
from splatbatch.output.records.attempt import GpuSample

NO_GPU = not gpu.gpus()
BEFORE = GpuSample(used_mib=500, temperature_c=40, processes=(7,))


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU here")
def test_without_a_driver_there_is_no_gpu_and_nothing_to_say() -> None:
    assert gpu.gpus() == ()
    assert gpu.driver_version() == ""
    assert gpu.sample("GPU-0123") == GpuSample()


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU, reason="no GPU here")
def test_every_gpu_has_a_uuid_memory_and_a_temperature() -> None:
    for card in gpu.gpus():
        sample = gpu.sample(card.uuid)
        assert card.uuid.startswith("GPU-")
        assert 0 <= (sample.used_mib or 0) <= card.total_mib
        assert sample.temperature_c is None or 0 < sample.temperature_c < 120
    assert gpu.driver_version()


def test_a_sample_is_written_with_all_its_figures() -> None:
    assert GpuSample(used_mib=3).to_record().keys() == GpuSample().to_record().keys() >= {"used_mib", "own_mib"}


@pytest.mark.parametrize(
    ("now", "cooldown", "why"),
    [
        (BEFORE, Cooldown(), ""),
        (GpuSample(used_mib=564), Cooldown(), ""),
        (GpuSample(used_mib=565), Cooldown(), "65 MiB more GPU memory in use than before the batch"),
        (GpuSample(used_mib=900, processes=(7, 8, 9)), Cooldown(), "held by process 8, 9"),
        (GpuSample(temperature_c=70), Cooldown(), ""),
        (GpuSample(temperature_c=69), Cooldown(below_c=70), ""),
        (GpuSample(temperature_c=70), Cooldown(below_c=70), "the GPU has 70 °C, wanted below 70 °C"),
        (GpuSample(), Cooldown(below_c=10), ""),
    ],
)
def test_a_gpu_is_ready_when_it_is_as_free_and_cool_as_wanted(now: GpuSample, cooldown: Cooldown, why: str) -> None:
    reason = gpu.why_not_ready(now, BEFORE, cooldown)
    assert why in reason
    assert bool(reason) == bool(why)


def test_a_gate_tells_how_long_a_patch_that_was_due_has_waited() -> None:
    gate = SlotGate(Slot("cpu0"), Cooldown(floor_s=5))
    gate.take("key")
    gate.release("key", 10)
    assert gate.shut is None
    assert [gate.is_open(now) for now in (11, 16)] == [False, True]
    assert (gate.shut and gate.shut.since, gate.shut and gate.shut.reason) == (11, "cooling down")
    gate.take("next")
    assert gate.shut is None


def test_a_slot_opens_when_it_is_free_and_the_floor_has_passed() -> None:
    gate = SlotGate(Slot("cpu0"), Cooldown(floor_s=5))
    assert gate.is_open(0)
    gate.take("key")
    assert not gate.has_seat()
    gate.release("key", 10)
    assert [gate.is_open(now) for now in (10, 14.9, 15)] == [False, False, True]


def test_a_gate_that_was_open_in_between_begins_to_wait_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "sample", lambda _: BEFORE)
    gate = SlotGate(Slot("gpu0", "GPU-a"), Cooldown(longest_s=60))
    for now, used in ((0, 900), (1, 500), (100, 900)):
        monkeypatch.setattr(gpu, "sample", lambda _, used=used: GpuSample(used_mib=used))
        assert gate.is_open(now) == (used == 500)
    assert not gate.given_up(100)


def test_a_slot_is_given_up_when_its_gpu_is_held_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "sample", lambda _: BEFORE)
    gate = SlotGate(Slot("gpu0", "GPU-a"), Cooldown(longest_s=60))
    monkeypatch.setattr(gpu, "sample", lambda _: GpuSample(used_mib=900, processes=(9,)))
    assert [gate.is_open(now) or gate.given_up(now) for now in (0, 60, 61)] == [False, False, True]
    assert "400 MiB more GPU memory in use than before the batch, held by process 9" in gate.reason


@pytest.mark.parametrize(
    ("used_mib", "footprint_mib", "is_open"),
    [(9_500, 2_000, False), (6_900, 2_000, True), (6_900, None, False), (500, 20_000, True), (500, None, True)],
)
def test_a_gpu_that_others_have_come_to_is_ready_where_the_patch_has_room(
    monkeypatch: pytest.MonkeyPatch, used_mib: int, footprint_mib: float | None, is_open: bool
) -> None:
    now = GpuSample(used_mib=500, total_mib=10_000, temperature_c=60)
    monkeypatch.setattr(gpu, "sample", lambda _: now)
    gate, hot = (SlotGate(Slot("gpu0", "GPU-a"), Cooldown(below_c=below_c)) for below_c in (None, 60))
    now = replace(now, used_mib=used_mib, processes=(9,))
    assert gate.is_open(0, footprint_mib) == is_open
    assert not hot.is_open(0, footprint_mib)


def test_a_gpu_that_is_named_twice_is_one_slot() -> None:
    assert len(Slots([Slot("gpu0", "GPU-0"), Slot("gpu0", "GPU-0")], Cooldown()).names) == 1
