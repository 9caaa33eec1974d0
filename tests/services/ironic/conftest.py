"""The Ironic, once for all tests of this folder."""

from collections.abc import Iterator
from functools import partial

import pytest
from openstack import utils

from tests.services.ironic.ironics import Ironic, ironic_running
from tests.services.recorder import Recorder, recorded


@pytest.fixture(scope="session")
def ironic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    with ironic_running(tmp_path_factory.mktemp("ironic")) as running:
        yield running


@pytest.fixture
def proxy(ironic: Ironic) -> Iterator[Recorder]:
    with recorded(ironic.url, waits=True) as between:
        yield between


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the SDK look more often than each two seconds; the rest of the waiting is real."""
    monkeypatch.setattr("openstack.utils.iterate_timeout", partial(utils.iterate_timeout, wait=0.05))
    monkeypatch.setattr("os_prefilter_tools.cli.baremetal.SECOND_LOOK", 0.05)
