# SPDX-License-Identifier: Apache-2.0

"""The options of a nova.conf: their defaults are Nova's, and what is wrong is
named.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from nova import conf as nova_conf
from oslo_config import cfg

from os_prefilter.adapters.nova_conf import (
    SWITCHES,
    LibvirtSettings,
    libvirt_settings,
    load_conf,
    release_of_compute,
)
from os_prefilter.common.errors import ConfigurationError


def settings_of(tmp_path: Path, text: str | bytes) -> LibvirtSettings:
    path = tmp_path / "nova.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return libvirt_settings(load_conf(path))


def test_libvirt_options_and_their_defaults_match_nova_except_virt_type(
    tmp_path: Path,
) -> None:
    nova = cfg.ConfigOpts()
    nova_conf.libvirt.register_opts(nova)
    nova_conf.compute.register_opts(nova)
    nova_conf.spice.register_opts(nova)
    nova([], default_config_files=[], default_config_dirs=[])
    ours = settings_of(tmp_path, "")
    assert (ours, ours.connection_uri) == (
        LibvirtSettings(),
        nova.libvirt.connection_uri,
    )
    assert dict(ours.hw_machine_type) == (nova.libvirt.hw_machine_type or {})
    assert ours.swtpm_enabled == nova.libvirt.swtpm_enabled
    assert ours.tpm_secret_security == set(
        nova.libvirt.supported_tpm_secret_security
    )
    assert (ours.images_type, ours.force_raw_images) == (
        nova.libvirt.images_type,
        nova.force_raw_images,
    )
    assert (ours.cpu_mode or None, ours.spice_enabled) == (
        nova.libvirt.cpu_mode,
        nova.spice.enabled,
    )
    assert list(ours.cpu_models) == nova.libvirt.cpu_models
    # The one that differs: Nova's is kvm, ours is "not said".
    assert (ours.virt_type, nova.libvirt.virt_type) == (None, "kvm")
    options = {
        option.name: option
        for option in nova_conf.libvirt.list_opts()[
            nova_conf.libvirt.libvirt_group
        ]
    }
    for name in ("virt_type", "images_type", "cpu_mode"):
        for value in options[name].type.choices:
            assert (
                getattr(
                    settings_of(tmp_path, f"[libvirt]\n{name} = {value}\n"),
                    name,
                )
                == value
            )


def test_libvirt_options_are_read_from_nova_conf(tmp_path: Path) -> None:
    text = """
[DEFAULT]
force_raw_images = no
compute_driver = libvirt.LibvirtDriver
[libvirt]
virt_type = qemu
connection_uri = qemu+tcp://compute-1/system
hw_machine_type = x86_64=q35, aarch64=virt-7.2, x86_64=pc
swtpm_enabled = yes
supported_tpm_secret_security = user,host
images_type = rbd
cpu_mode = custom
cpu_models = SandyBridge, Haswell
[spice]
enabled = true
"""
    settings = settings_of(tmp_path, text)
    assert dict(settings.hw_machine_type) == {
        "x86_64": "q35",
        "aarch64": "virt-7.2",
    }
    assert settings == LibvirtSettings(
        virt_type="qemu",
        connection_uri="qemu+tcp://compute-1/system",
        hw_machine_type=settings.hw_machine_type,
        swtpm_enabled=True,
        tpm_secret_security=frozenset(("user", "host")),
        images_type="rbd",
        force_raw_images=False,
        cpu_mode="custom",
        cpu_models=("SandyBridge", "Haswell"),
        spice_enabled=True,
    )


@pytest.mark.parametrize(
    ("entries", "ignored"),
    [
        ("q35, x86_64=q35", "'q35'"),
        ("x86_64=, x86_64=q35", "'x86_64='"),
        ("=pc, x86_64=q35, foo=bar", "'=pc', 'foo=bar'"),
        ("x86_64=q35, x86_64=p\x1b[2J", r"'x86_64=p\x1b[2J'"),
        (
            "foo=bar, " * 9
            + "".join(f"a{each}=b," for each in range(9))
            + "x86_64=q35",
            "'a3=b' and 5 more",
        ),
    ],
)
def test_entries_of_machine_types_that_nova_passes_over_are_named_in_one_warning(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    entries: str,
    ignored: str,
) -> None:
    settings = settings_of(
        tmp_path, f"[libvirt]\nhw_machine_type = {entries}\n"
    )
    assert settings == LibvirtSettings(hw_machine_type={"x86_64": "q35"})
    (warning,) = caplog.messages
    assert f"{ignored}. Write ARCHITECTURE=MACHINE" in warning
    assert warning.isprintable()


def test_environment_and_nova_conf_d_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor would nova-compute read that folder for the file."""
    monkeypatch.setenv("OS_LIBVIRT__VIRT_TYPE", "lxc")
    (tmp_path / "nova.conf.d").mkdir()
    (tmp_path / "nova.conf.d" / "a.conf").write_text(
        "[libvirt]\nvirt_type = lxc\n"
    )
    assert settings_of(tmp_path, "") == LibvirtSettings()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[libvirt]\nvirt_type = uml\n",
            (
                "[libvirt] virt_type: Valid values are [kvm, lxc, parallels,"
                " qemu], but"
            ),
        ),
        ("[libvirt]\nvirt_type = KVM\n", "'KVM'"),
        ("[libvirt]\nvirt_type =\n", "found ''"),
        ("[libvirt]\nvirt_type = kvm\x1b[2J\n", r"'kvm\x1b[2J'"),
        (
            "[libvirt]\nsupported_tpm_secret_security = user,nobody\n",
            "found 'nobody'",
        ),
        (
            "[libvirt]\nswtpm_enabled = maybe\n",
            "[libvirt] swtpm_enabled: Unexpected boolean value 'maybe'",
        ),
        (
            "[libvirt]\nconnection_uri = qemu+tcp://$my_ip/system\n",
            "connection_uri: a $ in its value refers to",
        ),
        (
            "[libvirt]\ncpu_mode = $cpu_mode\n",
            "[libvirt] cpu_mode: a $ in its value refers to itself",
        ),
        (
            (
                "[libvirt]\nimages_type = x$virt_type\nvirt_type ="
                " ${images_type}\n"
            ),
            "a $ in its value refers to itself",
        ),
        ("[libvirt\n", "it cannot be read as a nova.conf"),
        (b"\xff\xfe\n", "it cannot be read as a nova.conf"),
    ],
)
def test_invalid_nova_conf_error_is_one_line_with_the_file_and_the_problem(
    tmp_path: Path, text: str | bytes, says: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        settings_of(tmp_path, text)
    message = str(raised.value)
    assert message.startswith(str(tmp_path / "nova.conf"))
    assert says in message
    assert message.isprintable()


@pytest.mark.parametrize("name", ["missing.conf", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_a_configuration_error(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(
        ConfigurationError, match="it cannot be read as a nova.conf"
    ):
        load_conf(tmp_path / name)


@pytest.mark.parametrize(
    "line",
    [
        "  secret: it's secret",
        ": secret: secret",
        "[secret: secret",
        "  'secret': \"secret",
        "[secret" + "9" * 9_000,
    ],
)
def test_parse_error_never_shows_the_broken_line(
    tmp_path: Path, line: str
) -> None:
    """It may hold a password, also one with colons and quotes in it; a long
    one fills no screen.
    """
    path = tmp_path / "nova.conf"
    path.write_text(line)
    with pytest.raises(ConfigurationError) as raised:
        libvirt_settings(load_conf(path))
    assert "secret" not in str(raised.value)
    assert f"{path}:1" in str(raised.value)
    assert len(str(raised.value)) < 900


@pytest.mark.parametrize(
    ("prints", "release"),
    [("34.0.0", 34), ("31.3.1.dev5", 31), ("", None), ("no version", None)],
)
def test_release_of_compute_is_that_of_the_command_where_no_package_is_installed(
    prints: str,
    release: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An agent may have an environment of its own."""
    monkeypatch.setattr(
        "os_prefilter.adapters.nova_conf.installed_nova", lambda: None
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    assert release_of_compute() is None
    command = tmp_path / "nova-compute"
    command.write_text(f"#!/bin/sh\necho '{prints}'\n")
    command.chmod(0o755)
    assert release_of_compute() == release


def test_several_files_in_one_are_read_as_nova_reads_them_one_after_the_other(
    tmp_path: Path,
) -> None:
    """The later value counts, and sections add up."""
    path = tmp_path / "both.conf"
    path.write_text(
        "[libvirt]\nvirt_type = qemu\n[spice]\nenabled ="
        " true\n[libvirt]\nvirt_type = kvm\n"
    )
    settings = libvirt_settings(load_conf(path))
    assert settings.virt_type == "kvm"
    assert settings.spice_enabled


@pytest.mark.parametrize("option", SWITCHES.values())
def test_nova_has_the_switch_and_it_is_off(option: str) -> None:
    conf = cfg.ConfigOpts()
    nova_conf.scheduler.register_opts(conf)
    conf([])
    assert conf.scheduler[option] is False
