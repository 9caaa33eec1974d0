# SPDX-License-Identifier: Apache-2.0

"""The provider configuration file: Nova reads it, and no file is lost."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from nova.compute import provider_config as nova_provider_config
from nova.compute.provider_tree import ProviderTree
from nova.compute.resource_tracker import ResourceTracker
from nova.exception import ProviderConfigException

from os_prefilter.common.errors import ConfigurationError, DocumentError
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import TraitChange
from os_prefilter.hosts.marker_traits import (
    REPORTED,
    names_noting,
    names_with,
)
from os_prefilter_agent.adapters.provider_config import (
    COMPUTE_NODE,
    document,
    write_document,
)
from os_prefilter_tools.fleet.model import provider_uuid
from tests.conftest import one_in
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


_UUID = provider_uuid("kvm-1")
_GPU = provider_uuid("kvm-1_gpu")
_NAMES = {"kvm-1", _UUID}
_THEIRS = "CUSTOM_OF_AN_OPERATOR"
Inventories = dict[str, dict[str, int]]
_LICENSES: Inventories = {"CUSTOM_LICENSE": {"total": 5}}


def _file(*entries: dict[str, object]) -> str:
    return yaml.safe_dump(
        {"meta": {"schema_version": "1.0"}, "providers": entries}
    )


def _entry(
    identification: dict[str, str],
    traits: tuple[str, ...] = (_THEIRS,),
    inventories: tuple[Inventories, ...] = (),
) -> dict[str, object]:
    return {
        "identification": identification,
        "traits": {"additional": list(traits)},
        "inventories": {"additional": list(inventories)},
    }


class Reported(NamedTuple):
    """What a nova-compute reports of the host, and of its other node."""

    traits: frozenset[str]
    inventories: Inventories
    other: frozenset[str]


def reported_by_nova(directory: Path) -> Reported | None:
    """Return what Nova merges into its providers; None if it refuses.

    It does so at its start, or in each update of its resources.
    """
    tree = ProviderTree()
    for name in ("kvm-1", "kvm-2"):
        tree.new_root(name, provider_uuid(name))
        tree.update_traits(name, ["COMPUTE_NODE"])
        tree.update_inventory(name, {"VCPU": {"total": 8}})
    tree.new_child("kvm-1_gpu", "kvm-1", _GPU)
    tracker = ResourceTracker.__new__(ResourceTracker)
    tracker.absent_providers = set()
    try:
        configs = nova_provider_config.get_provider_configs(str(directory))
        tracker._merge_provider_configs(configs, tree)
    except (ProviderConfigException, ValueError):
        return None
    host, other = tree.data("kvm-1"), tree.data("kvm-2")
    base = {"COMPUTE_NODE", "OWNER_NOVA"}
    inventories = {
        name: {"total": amount["total"]}
        for name, amount in host.inventory.items()
        if name != "VCPU"
    }
    return Reported(
        frozenset(host.traits - base),
        inventories,
        frozenset(other.traits - base),
    )


_IDENTIFICATIONS = {
    "each node": {"uuid": COMPUTE_NODE},
    "each node as a name": {"name": COMPUTE_NODE},
    "the name": {"name": "kvm-1"},
    "the UUID": {"uuid": _UUID},
    "the UUID as a name": {"name": _UUID},
    "the UUID in capitals": {"uuid": _UUID.upper()},
    "another node": {"name": "kvm-2"},
    "the GPU": {"uuid": _GPU},
    "a host elsewhere": {"name": "kvm-3"},
}
_CONTENTS = {
    "traits": ((_THEIRS,), ()),
    "inventories": ((), (_LICENSES,)),
    "both": ((_THEIRS,), ({"CUSTOM_OTHER": {"total": 1}}, _LICENSES)),
    "nothing": ((), ()),
}


def _without_entries(path: Path, message: str) -> None:
    """Remove the entries that a message names, as its reader does."""
    advice, _, _ = message.partition(":\n\n")
    _, _, paths = advice.partition("remove the entry from ")
    document = yaml.safe_load(message.partition("\n\n")[2])
    (merged,) = document["providers"]
    named = set(merged["identification"].values())
    same = named if COMPUTE_NODE in named else _NAMES
    for each in filter(None, paths.split(", ")):
        other = Path(each)
        assert other.parent == path.parent
        content = yaml.safe_load(other.read_text())
        left = [
            entry
            for entry in content["providers"]
            if same.isdisjoint(entry["identification"].values())
        ]
        other.write_text(_file(*left))


_OURS = (COMPUTE_NODE, "kvm-1", _UUID, _UUID.upper())
_ALONE = list(product(_OURS, _IDENTIFICATIONS, _CONTENTS, [None]))
_PAIRS = list(product(_OURS, _IDENTIFICATIONS, ["both"], _IDENTIFICATIONS))


@pytest.mark.parametrize(
    ("ours", "first", "content", "second"),
    [*_ALONE[:: one_in(5)], *_PAIRS[:: one_in(13)]],
)
def test_nova_reports_the_traits_of_all_files_that_are_accepted_and_of_no_others(
    ours: str, first: str, content: str, second: str | None, path: Path
) -> None:
    """What is refused, Nova would refuse or ignore; and the merged text has it
    all.
    """
    entry = _entry(_IDENTIFICATIONS[first], *_CONTENTS[content])
    (path.parent / "a.yaml").write_text(_file(entry))
    if second is not None:
        last = _entry(_IDENTIFICATIONS[second], ("CUSTOM_LAST",))
        (path.parent / "b.yaml").write_text(_file(last))
    before = reported_by_nova(path.parent)
    try:
        write_document(path, TRAITS, ours, names=_NAMES)
    except DocumentError as error:
        message = str(error)
        assert not path.exists()
        path.write_text(document(TRAITS, ours.lower()))
        refused = reported_by_nova(path.parent)
        is_whole = (
            before is not None
            and refused is not None
            and refused.traits == before.traits | {HPET}
            and refused.inventories == before.inventories
            and refused.other >= before.other
        )
        assert not is_whole
        _without_entries(path, message)
        merged = message.partition("\n\n")[2]
        (path.parent / "merged.yaml").write_text(merged)
        path.unlink()
    found = reported_by_nova(path.parent)
    if before is not None:
        assert found is not None
        assert found.traits == before.traits | {HPET}
        assert found.inventories == before.inventories
        assert found.other >= before.other


@pytest.mark.parametrize(
    ("ours", "theirs", "effect"),
    [
        (
            COMPUTE_NODE,
            {"uuid": COMPUTE_NODE},
            "'$COMPUTE_NODE' too, and with two entries nova-compute does not"
            " start",
        ),
        (
            "kvm-1",
            {"name": "kvm-1"},
            "'kvm-1' too, and with two entries nova-compute does not start",
        ),
        (
            COMPUTE_NODE,
            {"name": "kvm-1"},
            "'kvm-1' too, and nova-compute ignores the entry of $COMPUTE_NODE",
        ),
        (
            "kvm-1",
            {"uuid": COMPUTE_NODE},
            "'$COMPUTE_NODE' too, and nova-compute ignores the entry of",
        ),
        (
            "kvm-1",
            {"uuid": _UUID},
            f"{_UUID}' too, and with its name and its UUID nova-compute does"
            " not report the host",
        ),
    ],
    ids=[
        "each node twice",
        "name twice",
        "name in the other",
        "each node in the other",
        "UUID in the other",
    ],
)
def test_error_names_the_file_the_entry_and_what_nova_compute_does(
    path: Path, ours: str, theirs: dict[str, str], effect: str
) -> None:
    """And a dry run has it, too; an earlier file stays."""
    write_document(path, {XEN: True}, ours)
    before = path.read_text()
    other = path.parent / "operator.yaml"
    other.write_text(_file(_entry({"name": "kvm-2"}), _entry(theirs)))
    for dry_run in (True, False):
        with pytest.raises(DocumentError) as raised:
            write_document(path, TRAITS, ours, names=_NAMES, dry_run=dry_run)
        message = str(raised.value)
        assert message.startswith(f"{other}: it names the provider ")
        assert effect in message
        assert "Nothing was written" in message
        assert f"remove the entry from {path}" in message
    assert path.read_text() == before


def test_file_without_traits_is_written_next_to_any_other(path: Path) -> None:
    """Nova passes over it."""
    other = path.parent / "operator.yaml"
    other.write_text(_file(_entry({"uuid": COMPUTE_NODE})))
    write_document(path, {HPET: False})
    assert read_by_nova(path.parent) == {COMPUTE_NODE: [_THEIRS]}


def test_merged_text_has_no_trait_that_an_earlier_one_had_of_ours(
    path: Path,
) -> None:
    """The note in it says which an operator did not set."""
    noted = names_noting([XEN])
    marker = names_with(REPORTED, ["OLDER"])
    other = path.parent / "operator.yaml"
    theirs = (_THEIRS, XEN, *noted, *marker)
    other.write_text(_file(_entry({"uuid": COMPUTE_NODE}, theirs)))
    with pytest.raises(DocumentError) as raised:
        write_document(path, TRAITS)
    other.write_text(str(raised.value).partition("\n\n")[2])
    assert read_by_nova(path.parent) == {COMPUTE_NODE: [HPET, _THEIRS]}


def test_inventory_that_two_files_have_is_named_as_not_mergeable(
    path: Path,
) -> None:
    """Where they differ. Nova refuses the two files without ours, too."""
    for name, total in (("a", 1), ("b", 2), ("c", 1)):
        inventories = ({"CUSTOM_X": {"total": total}}, _LICENSES)
        entry = _entry({"uuid": COMPUTE_NODE}, (), inventories)
        (path.parent / f"{name}.yaml").write_text(_file(entry))
    with pytest.raises(DocumentError) as raised:
        write_document(path, TRAITS)
    message = str(raised.value)
    assert message.count("cannot be merged") == 1
    assert (
        f"'CUSTOM_X' cannot be merged: {path.parent}/b.yaml has another"
        " inventory of it; correct the one below."
    ) in message
    for name in "abc":
        (path.parent / f"{name}.yaml").unlink()
    path.write_text(message.partition("\n\n")[2])
    found = reported_by_nova(path.parent)
    assert found is not None
    assert found.inventories == {"CUSTOM_X": {"total": 1}, **_LICENSES}


_BROKEN: dict[str, str | bytes] = {
    "no YAML": "providers: [",
    "deep": "[" * 500,
    "no text": b"\xff\xfe\x00",
    "empty": "",
    "a fleet": "hosts: {kvm-1: {}}",
    "a list": "[1, 2]",
    "two documents": f"{_file()}---\n{_file()}",
    "no identification": _file({"traits": {"additional": [_THEIRS]}}),
    "two identifications": _file(_entry({"name": "a", "uuid": _UUID})),
    "a number": _file({"identification": 7}),
    "no trait": _file(_entry({"name": "a"}, ("no trait",))),
    "traits without a name": _file(
        {"identification": {"name": "a"}, "traits": [_THEIRS]}
    ),
    "a date that does not exist": f"{_file()}x: 2026-02-30\n",
    "a tag": f"{_file()}x: !!python/object:os.system a\n",
}


_WITH_LINES = {"no YAML", "two documents", "a tag"}


@pytest.mark.parametrize("name", _BROKEN)
def test_file_that_nova_cannot_use_is_named_and_nothing_is_written(
    path: Path, name: str
) -> None:
    """What it says of the provider is not known."""
    text = _BROKEN[name]
    write_document(path, {XEN: True})
    before = path.read_bytes()
    other = path.parent / "operator.yaml"
    other.write_bytes(text.encode() if isinstance(text, str) else text)
    for dry_run in (True, False):
        with pytest.raises(DocumentError) as raised:
            write_document(path, TRAITS, dry_run=dry_run)
        error = raised.value
        assert error.path == str(other)
        assert error.problem.startswith("nova-compute does not start with")
        assert "it is not known whether it has an entry" in error.problem
        assert (error.line > 0) is (name in _WITH_LINES)
    assert path.read_bytes() == before
    with pytest.raises(
        (ProviderConfigException, ValueError, RecursionError, AttributeError)
    ):
        read_by_nova(path.parent)


def _directory(other: Path) -> None:
    other.mkdir()


def _link_that_leads_nowhere(other: Path) -> None:
    other.symlink_to("/no-such-file")


def _pipe(other: Path) -> None:
    os.mkfifo(other)


@pytest.mark.parametrize(
    "make",
    [_directory, _link_that_leads_nowhere, _pipe],
    ids=lambda make: make.__name__,
)
def test_file_that_cannot_be_read_is_named_and_nothing_is_written(
    path: Path, make: Callable[[Path], None]
) -> None:
    other = path.parent / "operator.yaml"
    make(other)
    with pytest.raises(DocumentError, match=f"^{other}: .*it is not known"):
        write_document(path, TRAITS)
    assert list(path.parent.iterdir()) == [other]


@pytest.mark.parametrize(
    ("owner", "function"),
    [(Path, "open"), (Path, "iterdir")],
    ids=["file", "directory"],
)
def test_file_or_directory_without_rights_is_named_and_nothing_is_written(
    path: Path,
    owner: type,
    function: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = path.parent / "operator.yaml"
    other.write_text(_file(_entry({"name": "kvm-2"})))

    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    with (
        monkeypatch.context() as patch,
        pytest.raises(DocumentError) as raised,
    ):
        patch.setattr(owner, function, refuse)
        write_document(path, TRAITS)
    message = str(raised.value)
    assert message.startswith(f"{path.parent}")
    assert "cannot be read: Permission denied" in message
    assert "it is not known whether it has an entry" in message
    assert list(path.parent.iterdir()) == [other]


@pytest.mark.parametrize(
    ("name", "theirs", "known", "warning"),
    [
        ("operator.yaml", {"name": "kvm-2"}, {"kvm-1"}, False),
        ("operator.yaml", {"uuid": _UUID}, {"kvm-1"}, True),
        ("operator.yaml", {"name": "kvm-1"}, {_UUID}, True),
        ("operator.yaml", {"name": "domain-c7"}, set(), True),
        ("operator.yaml", {"uuid": _GPU}, _NAMES, False),
        ("operator.yml", {"uuid": COMPUTE_NODE}, _NAMES, False),
        (".operator.yaml", {"uuid": COMPUTE_NODE}, _NAMES, False),
    ],
    ids=[
        "another name",
        "a UUID while only the name is known",
        "a name while only the UUID is known",
        "a name while none is known",
        "another UUID",
        "not *.yaml",
        "hidden",
    ],
)
def test_entry_that_may_be_about_the_host_is_warned_of_and_the_file_written(  # noqa: PLR0913
    path: Path,
    name: str,
    theirs: dict[str, str],
    known: set[str],
    *,
    warning: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Hidden files, and those of other names, Nova does not read."""
    other = path.parent / name
    other.write_text(_file(_entry(theirs)))
    added = [TraitChange(COMPUTE_NODE, HPET, "add")]
    assert write_document(path, TRAITS, names=known) == added
    assert reported_by_nova(path.parent) is not None
    assert (f"{other}: it names the provider" in caplog.text) is warning
    assert bool(caplog.text) is warning


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
