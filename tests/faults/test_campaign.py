"""Nothing is ever lost: sweeps and fits are killed in every way there is, resumed, and compared bit by bit.

The long campaign is `pytest -m faults --kills 8500 --ray-kills 1500 --damages 10000 tests/faults/test_campaign.py`. It
may be split: campaigns with another `--fault-seed` add up, and `--fault-counts DIR` keeps the counters of each, also of
one that is interrupted (`cd tests && python -m support.campaign DIR/*.json`). A seed repeats a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.campaign import Campaign
from support.damage import damage_files
from support.fault_injector import ALL_STEPS
from support.judging import CampaignCounts


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def judge(counts: CampaignCounts, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{counts.line()}")
    assert (counts.lost, counts.wrong) == (0, 0)


@pytest.mark.parametrize("mirrors", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_killed_drivers_lose_nothing(
    tmp_path: Path, fault_seed: int, mirrors: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Campaign(tmp_path, fault_seed, realizations=1).in_process(8, mirrors=mirrors).counts
    judge(counts, capsys)
    assert counts.kills.total() >= 8


@pytest.mark.slow
def test_killed_fits_lose_nothing(
    tmp_path: Path, fault_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = Campaign(tmp_path, fault_seed, realizations=1)
    judge(campaign.fits(30).counts, capsys)
    assert campaign.counts.kills.total() >= 30


@pytest.mark.hosts
def test_killed_rays_lose_nothing(
    tmp_path: Path, fault_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Campaign(tmp_path, fault_seed, realizations=2).on_ray(2).counts
    judge(counts, capsys)
    assert counts.kills.total() >= 2


@pytest.mark.faults
def test_the_long_campaign(
    tmp_path: Path,
    fault_seed: int,
    request: pytest.FixtureRequest,
    counts_file: Callable[[str], Path | None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    kills = request.config.getoption("--kills")
    campaign = Campaign(tmp_path, fault_seed, file=counts_file("in-process.json"))
    try:
        campaign.in_process(kills)
    finally:
        judge(campaign.counts, capsys)
    if kills >= 1000:
        assert campaign.counts.steps >= set(ALL_STEPS)


@pytest.mark.faults
def test_the_long_campaign_on_ray(
    tmp_path: Path,
    fault_seed: int,
    request: pytest.FixtureRequest,
    counts_file: Callable[[str], Path | None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    campaign = Campaign(tmp_path, fault_seed, file=counts_file("ray.json"))
    try:
        campaign.on_ray(request.config.getoption("--ray-kills"))
    finally:
        judge(campaign.counts, capsys)


@pytest.mark.faults
def test_many_damaged_files(
    tmp_path: Path,
    fault_seed: int,
    request: pytest.FixtureRequest,
    counts_file: Callable[[str], Path | None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with capsys.disabled():
        damages = request.config.getoption("--damages")
        counts = damage_files(tmp_path, fault_seed, damages, counts_file("damage.txt"))
        print(f"\n{counts.line()}")
    assert (counts.read_as_data, counts.missed) == (0, 0)


@pytest.mark.slow
def test_damaged_files_are_noticed(
    tmp_path: Path, fault_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        counts = damage_files(tmp_path, fault_seed, 60)
    assert (counts.read_as_data, counts.missed) == (0, 0)
    assert len(counts.files) > 6
