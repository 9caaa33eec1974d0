# SPDX-License-Identifier: Apache-2.0

"""What Nova's databases have of a server in addition to image and flavor: the
build request of a new one, and the cell of one that exists.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import nova.context
import pytest
from nova import objects
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import models
from oslo_db.sqlalchemy import enginefacade
from oslo_serialization import jsonutils

from os_prefilter import ServerOptions
from os_prefilter.nova.facts import look_up_server_options
from tests.support.nova_objects import nova_flavor, nova_spec
from tests.support.nova_start import Start, our_entry, user_context

_SERVER = "22222222-2222-4222-8222-222222222222"
_OTHER = "33333333-3333-4333-8333-333333333333"
_TAG = '<b>"nic"</b>\n& COMPUTE_NODE'
_CERTS = {"trusted_certs": objects.TrustedCerts(ids=[_OTHER])}
_MULTIATTACH = jsonutils.dumps({"multiattach": True})
_TRAITS = {
    "nic_tag": {"COMPUTE_DEVICE_TAGGING"},
    "block_device_tag": {"COMPUTE_DEVICE_TAGGING"},
    "trusted_certs": {"COMPUTE_TRUSTED_CERTS"},
    "multiattach": {"COMPUTE_VOLUME_MULTI_ATTACH"},
    "shares": {"COMPUTE_STORAGE_VIRTIO_FS", "COMPUTE_MEM_BACKING_FILE"},
}
_has_shares = pytest.mark.skipif(
    not hasattr(objects, "ShareMapping"), reason="this Nova has no shares"
)
_ALL_OPTIONS = [
    "nic_tag",
    "block_device_tag",
    "trusted_certs",
    "multiattach",
    pytest.param("shares", marks=_has_shares),
]
_NONE = ServerOptions()


class Databases:
    """Nova's API database and the database of one cell, with one server."""

    def __init__(self, folder: Path, context: Any) -> None:
        self._context = context
        path = folder / "cell.sqlite"
        self.cell = objects.CellMapping(
            context,
            uuid=_OTHER,
            name="cell",
            transport_url="none://",
            database_connection=f"sqlite:///{path}",
        )
        self.cell.create()
        with nova.context.target_cell(context, self.cell) as in_cell:
            engine = in_cell.db_connection.writer.get_engine()
            models.BASE.metadata.create_all(engine)

    def build(self, tag: str | None = None, **fields: Any) -> Any:
        """Create the records of a new server; return its request spec."""
        device = _device(self._context, tag=tag)
        instance = objects.Instance(
            self._context, uuid=_SERVER, project_id="project", **fields
        )
        devices = objects.BlockDeviceMappingList(objects=[device])
        objects.BuildRequest(
            self._context,
            instance_uuid=_SERVER,
            project_id="project",
            instance=instance,
            block_device_mappings=devices,
            tags=objects.TagList(objects=[]),
        ).create()
        self._map(None)
        return _spec()

    def server(self, *options: str) -> Any:
        """Create the records of a server in the cell; return the request spec
        of a move.
        """
        self._map(self.cell)
        with nova.context.target_cell(self._context, self.cell) as in_cell:
            fields: dict[str, Any] = {}
            if "trusted_certs" in options:
                fields = _CERTS
            flavor = nova_flavor(extra_specs={}, id=1, flavorid="1")
            objects.Instance(
                in_cell,
                uuid=_SERVER,
                project_id="project",
                flavor=flavor,
                **fields,
            ).create()
            is_tagged = "block_device_tag" in options
            info = _MULTIATTACH if "multiattach" in options else None
            _device(
                in_cell, tag=_TAG if is_tagged else None, connection_info=info
            ).create()
            _device(in_cell).create()
            if "nic_tag" in options:
                objects.VirtualInterface(
                    in_cell,
                    uuid=_OTHER,
                    instance_uuid=_SERVER,
                    address="fa:16:3e:00:00:01",
                    tag=_TAG,
                ).create()
            if "shares" in options:
                share = objects.ShareMapping(in_cell)
                share.uuid = _OTHER
                share.instance_uuid = _SERVER
                share.share_id = _OTHER
                share.status = "inactive"
                share.tag = _TAG
                share.export_location = "10.0.0.1:/share"
                share.share_proto = "NFS"
                share.create()
        return _spec(objects.Destination(cell=self.cell))

    def _map(self, cell: Any) -> None:
        mapping = objects.InstanceMapping(
            self._context, instance_uuid=_SERVER, project_id="project"
        )
        mapping.cell_mapping = cell
        mapping.create()


def _device(context: Any, **fields: Any) -> Any:
    return objects.BlockDeviceMapping(
        context,
        instance_uuid=_SERVER,
        source_type="volume",
        destination_type="volume",
        volume_id=_OTHER,
        **fields,
    )


def _spec(destination: Any = None, **fields: Any) -> Any:
    return nova_spec(
        instance_uuid=_SERVER, requested_destination=destination, **fields
    )


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[Databases]:
    api = enginefacade.transaction_context()
    api.configure(connection=f"sqlite:///{tmp_path / 'api.sqlite'}")
    api_models.BASE.metadata.create_all(api.writer.get_engine())
    restore = api_db.context_manager.patch_factory(api)
    # It reads an option that nova-scheduler's message bus registers.
    url_as_it_is = staticmethod(lambda url: url)
    with (
        mock.patch.dict(nova.context.CELL_CACHE, clear=True),
        mock.patch.object(objects.CellMapping, "format_mq_url", url_as_it_is),
    ):
        try:
            yield Databases(tmp_path, nova.context.get_admin_context())
        finally:
            restore()


def _scheduled(start: Start, spec: Any) -> set[str]:
    """Return what the filter requires in nova-scheduler."""
    start("server_options")
    our_entry()(user_context(), spec)
    return set(spec.root_required)


@pytest.mark.parametrize(
    "fields", [{}, {"trusted_certs": None}], ids=["unset", "none"]
)
def test_new_server_asks_for_nothing_else(
    databases: Databases, fields: dict[str, Any]
) -> None:
    spec = databases.build(**fields)
    assert look_up_server_options(None, spec) == _NONE


def test_new_server_with_a_tagged_block_device(databases: Databases) -> None:
    spec = databases.build(_TAG, trusted_certs=None)
    found = look_up_server_options(None, spec)
    assert found == ServerOptions(block_device_tag=True)


def test_new_server_with_trusted_certificates(databases: Databases) -> None:
    spec = databases.build(**_CERTS)
    found = look_up_server_options(None, spec)
    assert found == ServerOptions(trusted_certs=True)


def test_server_that_moves_without_options(databases: Databases) -> None:
    spec = databases.server()
    assert look_up_server_options(None, spec) == _NONE


@pytest.mark.parametrize("option", _ALL_OPTIONS)
def test_server_that_moves(
    databases: Databases, start: Start, option: str
) -> None:
    spec = databases.server(option)
    found = look_up_server_options(None, spec)
    assert found == _NONE._replace(**{option: True})
    assert _scheduled(start, spec) == _TRAITS[option]


def test_certificates_of_a_rebuild(databases: Databases) -> None:
    """Nova names no cell for it."""
    databases.server("trusted_certs", "nic_tag")
    spec = _spec(
        scheduler_hints={"_nova_check_type": ["rebuild"]},
        force_hosts=["here"],
    )
    found = look_up_server_options(None, spec)
    assert found == ServerOptions(nic_tag=True, trusted_certs=True)


def test_tag_of_a_nic_is_in_the_request_spec(
    databases: Databases, start: Start
) -> None:
    spec = databases.build(trusted_certs=None)
    nic = objects.NetworkRequest(network_id=_OTHER, tag=_TAG)
    other = objects.NetworkRequest(network_id=_OTHER)
    spec.requested_networks = objects.NetworkRequestList(objects=[other, nic])
    assert _scheduled(start, spec) == _TRAITS["nic_tag"]


@pytest.mark.parametrize(
    "destination",
    [
        None,
        objects.Destination(cell=objects.CellMapping(uuid=_OTHER)),
        objects.Destination(allow_cross_cell_move=True),
    ],
    ids=["no build request", "no instance mapping", "to another cell"],
)
def test_server_that_the_databases_do_not_have_starts_anywhere(
    databases: Databases,
    start: Start,
    destination: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = _spec(destination)
    with caplog.at_level(logging.WARNING):
        assert _scheduled(start, spec) == set()
    assert f"volumes and shares of the server '{_SERVER}'" in caplog.text


def test_server_of_a_cell_that_does_not_respond_moves_anywhere(
    databases: Databases, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    spec = databases.server("trusted_certs")
    error = RuntimeError("mysql://nova:hunter2@db is down\nERROR forged")
    with mock.patch("nova.context.target_cell", side_effect=error):
        assert _scheduled(start, spec) == set()
    assert "hunter2" not in caplog.text
    assert "no host is excluded because of them" in caplog.text


def test_tag_of_a_nic_counts_though_the_databases_do_not_respond(
    start: Start,
) -> None:
    nic = objects.NetworkRequest(network_id=_OTHER, tag=_TAG)
    networks = objects.NetworkRequestList(objects=[nic])
    spec = _spec(requested_networks=networks)
    error = RuntimeError("down")
    with mock.patch.object(
        objects.BuildRequest, "get_by_instance_uuid", side_effect=error
    ):
        assert _scheduled(start, spec) == _TRAITS["nic_tag"]


def test_databases_are_not_read_without_the_filter(start: Start) -> None:
    with mock.patch.object(
        objects.BuildRequest, "get_by_instance_uuid"
    ) as read:
        start("hpet")
        our_entry()(user_context(), _spec())
    assert not read.called
