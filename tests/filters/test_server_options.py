# SPDX-License-Identifier: Apache-2.0

"""server_options: what the API was asked for in addition to image and flavor,
in a scheduler's own request spec.
"""

from __future__ import annotations

from typing import Any

import pytest

from os_prefilter import Flavor, NetworkRequest, RequestSpec, ServerOptions
from os_prefilter.common.errors import UnsuitableRequestSpec
from os_prefilter.pipeline.decision import Decision
from tests.conftest import ExtraSpecs, pipeline_of

_TAGGING = ("COMPUTE_DEVICE_TAGGING",)
_VIRTIO_FS = "COMPUTE_STORAGE_VIRTIO_FS"
_SHARED_MEMORY = "COMPUTE_MEM_BACKING_FILE"
_OPTIONS = {
    "nic_tag": ("a NIC with a tag", _TAGGING),
    "block_device_tag": ("a block device with a tag", _TAGGING),
    "trusted_certs": ("trusted certificates", ("COMPUTE_TRUSTED_CERTS",)),
    "multiattach": (
        "a multi-attach volume",
        ("COMPUTE_VOLUME_MULTI_ATTACH",),
    ),
    "shares": ("a share", (_VIRTIO_FS, _SHARED_MEMORY)),
}


def _decided(
    options: Any, extra_specs: ExtraSpecs | None = None, **fields: Any
) -> Decision:
    flavor = Flavor(vcpus=1, memory_mb=512, extra_specs=extra_specs or {})
    spec = RequestSpec(flavor, server_options=options, **fields)
    return pipeline_of("server_options").apply(spec)


@pytest.mark.parametrize("option", _OPTIONS)
def test_option_requires_the_traits_of_drivers_that_serve_it(
    option: str,
) -> None:
    source, traits = _OPTIONS[option]
    decision = _decided(ServerOptions(**{option: True}))
    found = decision.requirements
    assert tuple(item.trait for item in found) == traits
    assert {item.source for item in found} == {source}
    assert {item.properties for item in found} == {(source,)}
    assert {item.scope for item in found} == {"root"}


def test_server_without_options_requires_nothing() -> None:
    assert _decided(ServerOptions()).requirements == ()


def test_all_options_require_all_traits() -> None:
    decision = _decided(ServerOptions(*[True] * len(_OPTIONS)))
    expected = {
        trait for _source, traits in _OPTIONS.values() for trait in traits
    }
    assert {item.trait for item in decision.requirements} == expected


@pytest.mark.parametrize("size", ["large", "small", "any", "2MB"])
def test_share_needs_no_file_backed_memory_with_pages_of_a_named_size(
    size: str,
) -> None:
    options = ServerOptions(shares=True)
    decision = _decided(options, {"hw:mem_page_size": size})
    found = [item.trait for item in decision.requirements]
    assert found == [_VIRTIO_FS]


@pytest.mark.parametrize("tag", ["nic", "", "<b>COMPUTE_NODE</b>\nERROR"])
def test_tag_of_a_requested_network_is_a_tag(tag: str) -> None:
    networks = [NetworkRequest("other"), NetworkRequest("network", tag=tag)]
    decision = _decided(ServerOptions(), requested_networks=networks)
    (found,) = decision.requirements
    assert found.trait == "COMPUTE_DEVICE_TAGGING"
    assert found.source == "a NIC with a tag"


def test_options_that_are_not_known_are_noted_and_not_required() -> None:
    decision = _decided(ServerOptions(not_known=True))
    assert decision.requirements == ()
    (note,) = decision.notes
    assert str(note) == (
        "tags, trusted certificates, volumes and shares: could not be read:"
        " not required"
    )


@pytest.mark.parametrize(
    "options", [{"nic_tag": True}, [True], "nic_tag", True, object()]
)
def test_options_of_another_type_are_refused(options: object) -> None:
    """As if nothing was asked for, any host would do."""
    with pytest.raises(UnsuitableRequestSpec, match="not ServerOptions"):
        _decided(options)
