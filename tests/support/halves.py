"""A plugin for pytest: of every test that has several cases, half of them, drawn by the word in $SNIB_TEST_HALF.

The cases are those of a parametrized function.  An odd one more is kept, so that each function has one at least; the same
word keeps the same cases, in each of several processes.  Without the variable all are kept.
"""

from __future__ import annotations

import os
import random

import pytest

WORD = os.environ.get("SNIB_TEST_HALF", "")


@pytest.hookimpl(trylast=True)  # of what a conftest.py leaves
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not WORD:
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left = set()
    for function, all_of_it in cases.items():
        left.update(random.Random(f"{WORD} {function}").sample(all_of_it, len(all_of_it) // 2))
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))
