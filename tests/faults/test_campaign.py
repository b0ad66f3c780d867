"""Nothing is ever lost: sweeps are killed in every way there is, resumed, and compared bit by bit.

The long campaign is `pytest -m faults --kills 1000 --ray-kills 150 --flips 2000`; the `--fault-seed` that it prints
repeats a failure.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.campaign import Campaign
from support.damage import damage_parts
from support.fault_injector import STEPS
from support.judging import CampaignCounts


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def judge(counts: CampaignCounts, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{counts.line()}")
    assert (counts.lost, counts.wrong) == (0, 0)


def test_killed_drivers_lose_nothing(
    tmp_path: Path, fault_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Campaign(tmp_path, fault_seed, realizations=1).in_process(8).counts
    judge(counts, capsys)
    assert counts.kills.total() >= 8


@pytest.mark.slow
def test_killed_drivers_with_mirrors_lose_nothing(
    tmp_path: Path, fault_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Campaign(tmp_path, fault_seed, realizations=1).in_process(8, mirrors=True).counts
    judge(counts, capsys)
    assert counts.kills.total() >= 8


@pytest.mark.faults
def test_the_long_campaign_with_mirrors(
    tmp_path: Path, fault_seed: int, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = Campaign(tmp_path, fault_seed)
    try:
        campaign.in_process(request.config.getoption("--mirror-kills"), mirrors=True)
    finally:
        judge(campaign.counts, capsys)


@pytest.mark.hosts
def test_killed_rays_lose_nothing(
    tmp_path: Path, fault_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Campaign(tmp_path, fault_seed, realizations=2).on_ray(2).counts
    judge(counts, capsys)
    assert counts.kills.total() >= 2


@pytest.mark.faults
def test_the_long_campaign(
    tmp_path: Path, fault_seed: int, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    kills, ray_kills = request.config.getoption("--kills"), request.config.getoption("--ray-kills")
    inside, on_ray = Campaign(tmp_path / "inside", fault_seed), Campaign(tmp_path / "ray", fault_seed)
    try:
        with ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(inside.in_process, kills - ray_kills), pool.submit(on_ray.on_ray, ray_kills)]
        for end in ends:
            end.result()
    finally:
        judge(inside.counts + on_ray.counts, capsys)
    if kills - ray_kills >= 500:
        assert inside.counts.steps >= set(STEPS)


@pytest.mark.faults
def test_many_damaged_parts(
    tmp_path: Path, fault_seed: int, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = damage_parts(tmp_path, fault_seed, request.config.getoption("--flips"))
    with capsys.disabled():
        print(f"\n{counts.line()}")
    assert (counts.read_as_data, counts.missed) == (0, 0)
