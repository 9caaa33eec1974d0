# SPDX-License-Identifier: Apache-2.0

"""The provider configuration file: Nova reads it, and no file is lost."""

import os
import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from nova.compute import provider_config as nova_provider_config
from nova.exception import ProviderConfigException

from os_prefilter.common.errors import ConfigurationError, DocumentError
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import TraitChange
from os_prefilter_agent.adapters.provider_config import (
    COMPUTE_NODE,
    document,
    write_document,
)
from os_prefilter_tools.fleet.model import provider_uuid
from tests.support.hosts import few_libvirt_hosts

HPET, XEN = "CUSTOM_COMPUTE_TIME_HPET", "CUSTOM_VM_MODE_XEN"
TRAITS = {HPET: True, XEN: False, "COMPUTE_FIRMWARE_BIOS": True}


def read_by_nova(directory: Path) -> dict[str, object]:
    found = nova_provider_config.get_provider_configs(str(directory))
    return {name: each["traits"]["additional"] for name, each in found.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "provider_config"
    directory.mkdir()
    return directory / "os-prefilter.yaml"


def test_nova_reads_exactly_the_custom_traits_of_each_libvirt_host(
    path: Path,
) -> None:
    """Standard traits are not in the file: Nova would refuse to start."""
    for traits in (
        {HPET: False},
        TRAITS,
        *map(capability_traits, few_libvirt_hosts()),
    ):
        write_document(path, traits)
        expected = sorted(
            trait
            for trait, has in traits.items()
            if has and trait.startswith("CUSTOM_")
        )
        assert read_by_nova(path.parent) == (
            {"$COMPUTE_NODE": expected} if expected else {}
        )


@settings(max_examples=20)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
)
def test_any_provider_name_survives_in_the_yaml_document(name: str) -> None:
    (provider,) = yaml.safe_load(document(TRAITS, name))["providers"]
    assert provider["identification"] == {
        "uuid" if name == COMPUTE_NODE else "name": name
    }


@pytest.mark.parametrize("name", [COMPUTE_NODE, provider_uuid("kvm-1")])
def test_an_empty_file_is_filled_and_a_provider_may_be_named_by_its_uuid(
    path: Path, name: str
) -> None:
    path.touch()
    write_document(path, TRAITS, name)
    assert read_by_nova(path.parent) == {name: [HPET]}


def test_write_returns_the_added_and_removed_traits(path: Path) -> None:
    """A dry run does so too, and writes nothing.

    The same content is not written again.
    """
    assert write_document(path, TRAITS, dry_run=True) == [
        TraitChange(COMPUTE_NODE, HPET, "add")
    ]
    assert list(path.parent.iterdir()) == []
    write_document(path, TRAITS)
    before = path.stat()
    assert write_document(path, TRAITS) == []
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    changes = [
        TraitChange(COMPUTE_NODE, XEN, "add"),
        TraitChange(COMPUTE_NODE, HPET, "remove"),
    ]
    assert write_document(path, {HPET: False, XEN: True}) == changes
    assert write_document(path, {XEN: True}, "kvm-1") == [
        TraitChange("kvm-1", XEN, "add")
    ]


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_file_has_mode_0644_whatever_the_umask(path: Path, umask: int) -> None:
    """nova-compute runs as another user than who writes it."""
    before = os.umask(umask)
    try:
        write_document(path, TRAITS)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]


def _entry(identification: dict[str, str]) -> str:
    traits = {"additional": ["CUSTOM_OF_AN_OPERATOR"]}
    providers = [
        {"identification": each, "traits": traits}
        for each in ({"name": "other"}, identification)
    ]
    return yaml.safe_dump(
        {"meta": {"schema_version": "1.0"}, "providers": providers}
    )


_UUID = provider_uuid("kvm-1")
_TWO = "too, and with two nova-compute does not start"


@pytest.mark.parametrize(
    ("provider", "identification", "message"),
    [
        (COMPUTE_NODE, {"uuid": COMPUTE_NODE}, _TWO),
        ("kvm-1", {"name": "kvm-1"}, _TWO),
        (_UUID, {"uuid": _UUID}, _TWO),
        (
            COMPUTE_NODE,
            {"name": "kvm-1"},
            "it names 'kvm-1', and nova-compute reads only one of the two",
        ),
        (
            "kvm-1",
            {"uuid": COMPUTE_NODE},
            (
                "it names '\\$COMPUTE_NODE', and nova-compute reads only one"
                " of the two"
            ),
        ),
    ],
    ids=[
        "each node twice",
        "name twice",
        "UUID twice",
        "name in the other",
        "each node in the other",
    ],
)
def test_a_second_entry_for_the_provider_is_refused_and_no_file_is_written(
    path: Path, provider: str, identification: dict[str, str], message: str
) -> None:
    """Nova's own loader refuses two of the same.

    Of two others, its resource tracker passes one over.
    """
    other = path.parent / "operator.yaml"
    other.write_text(_entry(identification))
    refused = f"^{other}: .*{message}.*Add the traits that --dry-run lists"
    for dry_run in (True, False):
        with pytest.raises(DocumentError, match=refused):
            write_document(
                path, TRAITS, provider, host="kvm-1", dry_run=dry_run
            )
    assert not path.exists()
    if provider in identification.values():
        path.write_text(document(TRAITS, provider))
        with pytest.raises(
            ProviderConfigException, match="has multiple definitions"
        ):
            read_by_nova(path.parent)


@pytest.mark.parametrize(
    ("name", "text", "warning"),
    [
        ("operator.yaml", _entry({"name": "kvm-2"}), ""),
        ("operator.yml", _entry({"uuid": COMPUTE_NODE}), ""),
        (
            "operator.yaml",
            _entry({"uuid": _UUID}),
            f"it names the provider '{_UUID}': if that is this host",
        ),
        (
            "operator.yaml",
            "[" * 500,
            "Failed to look for other entries of the provider",
        ),
        ("fleet.yaml", "hosts: {kvm-1: {}}", ""),
        ("list.yaml", "[1, 2]", ""),
        ("list.yaml", "providers: [1, {identification: 7}]", ""),
    ],
    ids=[
        "another host",
        "not *.yaml",
        "a UUID",
        "no YAML",
        "a fleet",
        "a list",
        "odd providers",
    ],
)
def test_what_is_no_second_entry_for_certain_does_not_keep_the_file_from_being_written(
    path: Path,
    name: str,
    text: str,
    warning: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (path.parent / name).write_text(text)
    assert write_document(path, TRAITS, host="kvm-1") == [
        TraitChange(COMPUTE_NODE, HPET, "add")
    ]
    assert write_document(path, TRAITS, host="kvm-1") == []
    assert warning in caplog.text
    assert bool(caplog.text) == bool(warning)


def test_symlink_is_refused_and_its_target_is_not_written(
    path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "elsewhere.yaml"
    path.symlink_to(target)
    with pytest.raises(
        DocumentError,
        match=f"a symbolic link to {target}, and links are not followed",
    ):
        write_document(path, TRAITS)
    assert path.is_symlink()
    assert not target.exists()


@pytest.mark.parametrize(
    "text", ["meta: {schema_version: '1.0'}\n", "\n", "\xff"]
)
def test_file_not_written_by_os_prefilter_is_not_replaced(
    path: Path, text: str
) -> None:
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DocumentError, match="was not written by os-prefilter"):
        write_document(path, TRAITS)
    assert path.read_text(encoding="latin-1") == text


def test_failed_write_leaves_the_old_file_and_no_temporary_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, or the writer is killed, at each step of the write.

    nova-compute reads what ends in .yaml.
    """
    write_document(path, TRAITS)
    old = path.read_text()

    def full(*_arguments: object) -> None:
        assert list(path.parent.glob("*.yaml")) == [path]
        raise OSError(28, "No space left on device")

    for target, name in ((os, "fsync"), (os, "fchmod"), (Path, "replace")):
        with (
            monkeypatch.context() as patch,
            pytest.raises(DocumentError, match="No space left on device"),
        ):
            patch.setattr(target, name, full)
            write_document(path, {XEN: True})
        assert path.read_text() == old
        assert list(path.parent.iterdir()) == [path]


def test_invalid_trait_name_is_refused_and_no_file_is_written(
    path: Path,
) -> None:
    with pytest.raises(ConfigurationError, match="is not the name of a trait"):
        write_document(path, {"CUSTOM_A\nB": True})
    assert not path.exists()


@pytest.mark.parametrize(
    "edited",
    [
        "[" * 500,
        "providers: 7",
        "providers: [{traits: {additional: [1, CUSTOM_B]}}]",
    ],
)
def test_a_file_of_ours_that_was_edited_beyond_use_is_written_again(
    path: Path, edited: str
) -> None:
    write_document(path, TRAITS)
    path.write_text(path.read_text().splitlines(keepends=True)[0] + edited)
    changes = write_document(path, TRAITS)
    assert TraitChange(COMPUTE_NODE, HPET, "add") in changes
    assert write_document(path, TRAITS) == []
