"""The writer of a provider configuration is killed at random points: the file is the old or the new one, then right."""

import multiprocessing
import random
import time
from pathlib import Path

import yaml

from os_prefilter.adapters.placement.provider_config import document, write_document
from tests.conftest import times


def _write(path: Path) -> None:
    for number in range(10**9):
        write_document(path, {f"CUSTOM_{name}_{number % 2}": True for name in range(300)})


def test_killed_writer_leaves_the_old_provider_config_or_the_new_one(tmp_path: Path) -> None:
    """Whenever its writer is killed, nova-compute reads one of them whole, and the next report puts it right."""
    choice = random.Random(8)  # noqa: S311 - when it is killed
    path = tmp_path / "os-prefilter.yaml"
    sets = [{f"CUSTOM_{name}_{which}": True for name in range(300)} for which in (0, 1)]
    for _ in range(times(4)):
        process = multiprocessing.get_context("fork").Process(target=_write, args=(path,))
        process.start()
        time.sleep(choice.uniform(0, 0.2))
        process.kill()
        process.join()
        if path.exists():
            assert path.read_text(encoding="utf-8") in [document(each) for each in sets]
    write_document(path, {"CUSTOM_A": True})
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["providers"][0]["traits"]["additional"] == ["CUSTOM_A"]
    assert list(tmp_path.glob("*.yaml")) == [path]
