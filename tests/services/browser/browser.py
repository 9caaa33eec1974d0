# SPDX-License-Identifier: Apache-2.0

"""The real browser that tests may use: Debian's chromium with its driver. In
CI it must be there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER) and not os.environ.get("CI"),
    reason="it needs Debian's chromium and chromium-driver",
)

_ARGUMENTS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    ),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
    ),
)


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    """Run a browser whose profile is ``folder``, which logs each request that
    a page makes.
    """
    assert BROWSER, "in CI, chromium must be installed"
    assert DRIVER, "in CI, chromium-driver must be installed"
    from selenium import (  # noqa: PLC0415 - Needed with a browser only.
        webdriver,
    )
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in (*_ARGUMENTS, f"--user-data-dir={folder}"):
        options.add_argument(argument)
    options.set_capability(
        "goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"}
    )
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def show(
    driver: Any,
    path: Path,
    *,
    width: int = 1200,
    height: int = 900,
    dark: bool = False,
) -> None:
    screen = {
        "width": width,
        "height": height,
        "deviceScaleFactor": 1,
        "mobile": width < 500,
    }
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = {
        "name": "prefers-color-scheme",
        "value": "dark" if dark else "light",
    }
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [scheme]}
    )
    driver.get(path.as_uri())
