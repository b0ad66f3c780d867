"""Numbers cannot change silently: small E-steps, fits and sweeps give the numbers stored beside this file.

A sweep that is resumed mixes rows of the old and the new code unless NUMERICS tells them apart. So either the numbers
stay, or NUMERICS and the stored values change together.
"""

from __future__ import annotations

import json

import pytest
from support.golden import FILE, WRITE, measure, names, same, tolerance

from kising.version import NUMERICS

STORED = json.loads(FILE.read_text())
GOLDEN = STORED["values"]


def test_the_values_were_made_by_these_numerics() -> None:
    assert STORED["numerics"] == NUMERICS, (
        f"{FILE.name} holds the numbers of NUMERICS {STORED['numerics']}, kising/version.py says {NUMERICS}: {WRITE}"
    )


def test_every_case_has_values_and_every_value_a_case() -> None:
    assert sorted(GOLDEN) == sorted(names()), f"cases and {FILE.name} differ: {WRITE}"


@pytest.mark.parametrize("name", names())
def test_numbers_are_as_before(name: str) -> None:
    golden = GOLDEN[name]
    found = measure(name)
    changed = [
        f"{key}: {found.get(key)}, was {value}"
        for key, value in golden.items()
        if not same(found.get(key), value, tolerance(name))
    ]
    assert not changed, (
        f"{len(changed)} of {len(golden)} numbers of '{name}' changed while NUMERICS is still {NUMERICS}: "
        f"{'; '.join(changed[:5])}. "
        f"If that is intended, bump NUMERICS in kising/version.py and {WRITE}"
    )
