"""A plugin of pytest for the mutation tests: the fastest tests first, and the first failure of a law is enough."""  # noqa: INP001

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings

# In mutmut's folder. It is not there yet while mutmut measures the tests.
MEASURED = Path("mutmut-stats.json")

seconds: dict[str, float] = (
    json.loads(MEASURED.read_text())["duration_by_test"]
    if MEASURED.exists()
    else {}
)


def pytest_collection() -> None:
    """Look for no smaller example of a failure: a state machine took minutes for it."""
    settings.register_profile(
        "quick-kills",
        settings.default,
        phases=(Phase.explicit, Phase.generate),
    )
    settings.load_profile("quick-kills")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Sort the tests by the time that they took: mutmut's fork server gives them in any order."""
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
