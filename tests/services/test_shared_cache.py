# SPDX-License-Identifier: Apache-2.0

"""Processes of two hosts share what they read in a real memcached."""

import gc
from pathlib import Path

import pytest

from tests.service.shared_workers import (
    CountingReader,
    cache,
    shared_fact,
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
        readers = [
            CountingReader(),
            CountingReader(),
            CountingReader("another section"),
            CountingReader(),
        ]
        clouds = [cache(port, each) for each in ("one", "other", "one", "one")]
        facts = [
            shared_fact(read, 60, (each.store,))
            for read, each in zip(readers, clouds, strict=True)
        ]
        assert [fact(None).value for fact in facts] == [1, 1, 1, 1]
        assert [each.read for each in readers] == [1, 1, 1, 0]
        # pymemcache leaves its connections to the garbage collector.
        del facts, clouds
        gc.collect()
