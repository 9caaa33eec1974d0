# SPDX-License-Identifier: Apache-2.0

"""Processes of two hosts share what they read in a real memcached."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.service.shared_workers import (
    CountingReader,
    cache,
    shared_fact,
    value_of,
    workers,
)
from tests.services.own_services import needs, own_memcached

pytestmark = needs("memcached")


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
)
def test_hosts_share_and_clouds_and_sections_do_not(tmp_path: Path) -> None:
    with own_memcached() as memcached:
        port = str(memcached.port)
        assert len(workers(6, "none", tmp_path / "readings", port)) == 6
        assert (
            len(
                (tmp_path / "readings")
                .read_text(encoding="utf-8")
                .splitlines()
            )
            == 1
        )
        shared = [
            ("one", "f", 1),
            ("other", "f", 1),
            ("one", "another section", 1),
            ("one", "f", 0),
        ]
        facts = []
        for cloud, whose, readings in shared:
            reader = CountingReader()
            fact = shared_fact(reader, 60, (cache(port, cloud),), whose)
            assert value_of(fact) == 1
            assert reader.read == readings
            facts.append(fact)
        # pymemcache leaves its connections to the garbage collector.
        del facts, fact
        gc.collect()
