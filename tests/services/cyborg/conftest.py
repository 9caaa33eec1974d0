# SPDX-License-Identifier: Apache-2.0

"""A real Cyborg beside a real Placement, in which the compute services of two
hosts have created their providers, a GPU among those of each host.
"""

from __future__ import annotations

import shutil
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, Provider
from tests.services.cyborg.real_cyborg import (
    Cyborg,
    Hardware,
    cyborg_program,
)
from tests.support.placements import HOST, provider, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.cyborg.real_cyborg import CyborgProgram
    from tests.support.placements import Served

OTHER_HOST = "kvm-2"
"""A host without Cyborg's agent."""


def novas_gpu(host: str) -> str:
    """Return the name of the provider of a GPU that is Nova's."""
    return f"{host}_pci_0000_84_00_0"


def _host(name: str) -> Provider:
    gpu = provider(novas_gpu(name), "VGPU")
    return provider(name, "VCPU MEMORY_MB DISK_GB", "COMPUTE_NODE", (gpu,))


@pytest.fixture(scope="session")
def hardware(tmp_path_factory: pytest.TempPathFactory) -> Hardware:
    return Hardware(tmp_path_factory.mktemp("hardware"))


@pytest.fixture(scope="session")
def program(hardware: Hardware) -> Iterator[CyborgProgram]:
    with cyborg_program(hardware) as program:
        yield program


@contextmanager
def placement_with_hosts() -> Iterator[Served]:
    hosts = Fleet((_host(HOST), _host(OTHER_HOST)))
    with EmbeddedPlacement(hosts) as placement, served(placement) as state:
        yield state


@pytest.fixture
def placement() -> Iterator[Served]:
    with placement_with_hosts() as state:
        yield state


@pytest.fixture(scope="session")
def empty_database(
    program: CyborgProgram, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a database with Cyborg's schema."""
    folder = tmp_path_factory.mktemp("schema")
    with EmbeddedPlacement() as placement, served(placement) as state:
        cyborg = Cyborg(program, state, folder)
        cyborg.start("create_schema")
        cyborg.close()
    return folder / "cyborg.db"


@pytest.fixture
def cyborg(
    program: CyborgProgram,
    placement: Served,
    hardware: Hardware,
    empty_database: Path,
    tmp_path: Path,
) -> Iterator[Cyborg]:
    """Return a Cyborg that has not been started, on a host without devices."""
    hardware.unplug_all()
    shutil.copy(empty_database, tmp_path / "cyborg.db")
    with closing(Cyborg(program, placement, tmp_path)) as cyborg:
        yield cyborg
