# SPDX-License-Identifier: Apache-2.0

"""Nova's configuration, read without importing Nova.

Its sections, and the options that decide what a libvirt host can do.

An error names the file, the section and the option, and never shows a
password. Names and defaults are those of Nova 34 (``nova/conf/libvirt.py``,
``compute.py``, ``scheduler.py`` and ``spice.py``); a test compares them.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which
from typing import Any

from oslo_config import cfg, types

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import escape_line, join_first_names, quote
from os_prefilter.documents.files import check_readable, is_file
from os_prefilter.hosts.drivers.libvirt_facts import NovaSettings
from os_prefilter.hosts.drivers.nova_releases import (
    NEWEST_NOVA,
    NOVA_RELEASES,
    list_releases,
)
from os_prefilter.vocabulary.machine_types import ARCHITECTURES

LOG = get_logger(__name__)

_TPM_SECRET_SECURITY = ("user", "host", "deployment")
_SECRETS = types.String(choices=_TPM_SECRET_SECURITY)
_IMAGES = ("raw", "flat", "qcow2", "lvm", "rbd", "ploop", "default")
# Fields of LibvirtSettings, each with the section of its option.
_LIBVIRT: dict[str, tuple[str, cfg.Opt]] = {
    # Nova's default is kvm; with None, where nothing is configured, the probe
    # looks whether the host has it.
    "virt_type": (
        "libvirt",
        cfg.StrOpt("virt_type", choices=("kvm", "lxc", "parallels", "qemu")),
    ),
    "connection_uri": ("libvirt", cfg.StrOpt("connection_uri", default="")),
    "hw_machine_type": ("libvirt", cfg.ListOpt("hw_machine_type", default=[])),
    "swtpm_enabled": ("libvirt", cfg.BoolOpt("swtpm_enabled", default=False)),
    "tpm_secret_security": (
        "libvirt",
        cfg.ListOpt(
            "supported_tpm_secret_security",
            item_type=_SECRETS,
            default=list(_TPM_SECRET_SECURITY),
        ),
    ),
    "images_type": (
        "libvirt",
        cfg.StrOpt("images_type", default="default", choices=_IMAGES),
    ),
    "cpu_mode": (
        "libvirt",
        cfg.StrOpt(
            "cpu_mode",
            choices=("host-model", "host-passthrough", "custom", "none"),
        ),
    ),
    "cpu_models": (
        "libvirt",
        cfg.ListOpt(
            "cpu_models",
            deprecated_name="cpu_model",
            default=[],
        ),
    ),
    "force_raw_images": (
        "DEFAULT",
        cfg.BoolOpt("force_raw_images", default=True),
    ),
    "spice_enabled": ("spice", cfg.BoolOpt("enabled", default=False)),
}
_AVAILABLE_FILTERS = cfg.MultiStrOpt(
    "available_filters", default=["nova.scheduler.filters.all_filters"]
)
SWITCHES = {
    "image_metadata": "image_metadata_prefilter",
    "image_type": "query_placement_for_image_type_support",
}
"""Filter -> the option of ``[scheduler]`` for Nova's filter of its purpose."""
_QUOTED_LINE = re.compile(""": ['"]""")
_LONGEST_REASON = 500
_SHOWN = 5
# Seconds: it imports all of Nova.
_VERSION_TIMEOUT = 60
_ARCHITECTURES = frozenset(ARCHITECTURES.split())
COMPUTE = "nova-compute"
_FOLDER = "/etc/nova"


@dataclass(frozen=True, kw_only=True)
class LibvirtSettings(NovaSettings):
    """The options of a libvirt host; without arguments, Nova's defaults."""

    virt_type: str | None = None
    """None: not set."""
    connection_uri: str = ""
    """Empty: the usual one of the virt type."""
    hw_machine_type: Mapping[str, str] = field(default_factory=dict)
    """Guest architecture -> the default machine type of its guests."""


class ConfigurationDenied(ConfigurationError):
    """Nova's configuration is there, and this user may not read it."""


def load_conf(path: str | Path) -> cfg.ConfigOpts:
    """Return the configuration in a nova.conf, without registered options.

    :raises DocumentError: if it is a named pipe or a device, which could block
        its reader
    :raises ConfigurationError: if the file cannot be read as one
    """
    check_readable(path)
    conf = cfg.ConfigOpts()
    _parse(
        conf,
        str(path),
        ["--config-file", str(path)],
        default_config_dirs=[],
        use_env=False,
    )
    return conf


def read_conf(
    arguments: Sequence[str],
    program: str = COMPUTE,
    conf: cfg.ConfigOpts | None = None,
    **options: Any,
) -> cfg.ConfigOpts:
    """Return the configuration that a program of Nova reads.

    It is empty where there is no file.

    :param arguments: ``--config-file`` and ``--config-dir`` with their paths;
        oslo.config's default paths stand for an option that is not given
    :param conf: reads the files; None for one without options
    :param options: of its call; ``args`` are further arguments
    :raises DocumentError: if a file is a named pipe or a device
    :raises ConfigurationDenied: if this user may not read a file or directory
    :raises ConfigurationError: if one cannot be read as configuration
    """
    if conf is None:
        conf = cfg.ConfigOpts()
        # The variables of the program are those of another environment.
        options["use_env"] = False
    paths = paths_of(arguments, program)
    if "--config-file" not in arguments:
        # oslo.config takes a file in a closed directory for a missing one.
        _check_permitted(_FOLDER)
    for path in paths:
        check_readable(path)
        _check_permitted(path)
    for option, path in zip(arguments[::2], arguments[1::2]):
        # oslo.config takes a file for an empty directory.
        if option == "--config-dir" and is_file(path):
            raise ConfigurationError(
                f"{escape_line(path)}: this is a file; give the path of a"
                " directory, or --config-file."
            )
    others = options.pop("args", ())
    _parse(
        conf,
        ", ".join(paths),
        [*arguments, *others],
        default_config_files=cfg.find_config_files("nova", program),
        default_config_dirs=cfg.find_config_dirs("nova", program),
        **options,
    )
    return conf


def paths_of(arguments: Sequence[str], program: str = COMPUTE) -> list[str]:
    """Return the files and directories that a program of Nova reads.

    :param arguments: as of :func:`read_conf`
    """
    paths = []
    if "--config-file" not in arguments:
        paths += cfg.find_config_files("nova", program)
    if "--config-dir" not in arguments:
        paths += cfg.find_config_dirs("nova", program)
    return [*paths, *arguments[1::2]]


def files_read(conf: cfg.ConfigOpts) -> str:
    """Return the files and directories of a configuration, for messages."""
    # The option config_dir has only the last one that is given.
    folders = conf.config_dirs or conf.config_dir
    return escape_line(", ".join((*conf.config_file, *folders)))


def _check_permitted(path: str) -> None:
    # oslo.config takes a directory that it may not list for an empty one, and
    # waits for a named pipe in it.
    try:
        if Path(path).is_dir():
            for name in os.listdir(path):  # noqa: PTH208 - iterdir is lazy
                file = Path(path, name).resolve()
                # A link to the null device masks a file of a package.
                if name.endswith(".conf") and str(file) != os.devnull:
                    check_readable(Path(path, name))
    except PermissionError as error:
        raise ConfigurationDenied(
            f"{escape_line(path)}: the directory cannot be read:"
            f" {error.strerror}."
        ) from error
    except OSError:
        # The reader says what is wrong.
        return


def _parse(
    conf: cfg.ConfigOpts,
    where: str,
    arguments: Sequence[str] = (),
    **options: Any,
) -> None:
    try:
        conf(list(arguments), project="nova", **options)
    except (cfg.Error, OSError, ValueError) as error:
        kind = ConfigurationError
        if isinstance(error, cfg.ConfigFilesPermissionDeniedError):
            kind = ConfigurationDenied
        # Without its cause, which contains the line, and so perhaps a
        # password.
        raise kind(
            f"{escape_line(where)}: it cannot be read as a nova.conf:"
            f" {reason_of(error)}"
        ) from None


def available_filters(conf: cfg.ConfigOpts, where: str) -> list[str]:
    """Return the values of ``[filter_scheduler] available_filters``.

    These are the lines of all files together, or Nova's default.

    :raises ConfigurationError: if one is not valid
    """
    return [
        str(each).strip()
        for each in _register_and_read(
            conf, where, _AVAILABLE_FILTERS, "filter_scheduler"
        )
    ]


def novas_filters_on(conf: cfg.ConfigOpts, where: str) -> set[str]:
    """Return the filters in whose place Nova's own is switched on.

    :raises ConfigurationError: if the value of a switch is not valid
    """
    return {
        name
        for name, option in SWITCHES.items()
        if _register_and_read(
            conf, where, cfg.BoolOpt(option, default=False), "scheduler"
        )
    }


def _register_and_read(
    conf: cfg.ConfigOpts, where: str, option: cfg.Opt, group: str
) -> Any:
    conf.register_opt(option, group=None if group == "DEFAULT" else group)
    return read_option(conf, where, option.name, group)


def read_option(
    conf: cfg.ConfigOpts, where: str, option: str, group: str
) -> Any:
    """Return the value of a registered option.

    :raises ConfigurationError: if it is not valid
    """
    try:
        return conf[option] if group == "DEFAULT" else conf[group][option]
    except (cfg.ConfigSourceValueError, ValueError) as error:
        raise invalid_option(
            where, option, f"{reason_of(error)} Correct it.", group
        ) from error
    except (cfg.Error, RecursionError):
        # Without its cause, which contains what follows the $: the rest of a
        # password.
        problem = (
            "a $ in its value refers to itself, or to an option that is not"
            " read here. Write $$ for a $."
        )
        raise invalid_option(where, option, problem, group) from None


def invalid_option(
    where: str, option: str, problem: str, group: str
) -> ConfigurationError:
    """Return the error for an option of a file."""
    return ConfigurationError(
        f"{where}: [{escape_line(group)}] {option}: {problem}"
    )


def reason_of(error: Exception) -> str:
    """Return the message of a failed reading as one sentence.

    The error is oslo.config's, or that of a library that reads with it; its
    location is left out.
    """
    text = " ".join(str(error).split()).rpartition(" is not valid: ")[2]
    if isinstance(error, cfg.ConfigFileParseError):
        # The line itself follows in quotes, and may contain a password.
        text = _QUOTED_LINE.split(text, maxsplit=1)[0]
    return escape_line(text[:_LONGEST_REASON]).rstrip(".") + "."


def release_of_compute() -> int | None:
    """Return the release of the host's nova-compute; None if not known.

    34 stands for 2026.2.

    It is that of the installed package nova, else of the command in the search
    path: an agent may have an environment of its own.
    """
    if (release := installed_nova()) is not None:
        return release
    try:
        command = [which("nova-compute") or "", "--version"]
        done = subprocess.run(  # noqa: S603 - no shell
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERSION_TIMEOUT,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return nova_release(done.stdout.strip().partition(".")[0])


def installed_nova() -> int | None:
    """Return the release of the installed package nova; None if not known."""
    try:
        # A damaged installation has no version.
        return nova_release(str(version("nova")).partition(".")[0])
    except PackageNotFoundError:
        return None


def unsupported_nova() -> str:
    """Return a warning if the installed Nova was not tested; else empty."""
    release = installed_nova()
    if release is None or release in NOVA_RELEASES:
        return ""
    tested = (
        f"os-prefilter {version('os-prefilter')} is tested with Nova"
        f" {list_releases()}"
    )
    advice = (
        "they may require traits that its compute services do not report."
        " Upgrade Nova, or audit each filter first."
    )
    if release > NEWEST_NOVA:
        advice = (
            "a new request filter of Nova with the purpose of one of ours runs"
            " as well. Upgrade os-prefilter."
        )
    return (
        f"{tested}, not with Nova {version('nova')}. The filters run all the"
        f" same, but {advice}"
    )


def incompatible_nova(error: ImportError) -> str:
    """Return the message for a Nova that cannot import the entry point."""
    try:
        nova = f"Nova {version('nova')}"
    except PackageNotFoundError:
        nova = "this environment, which has no Nova"
    return (
        f"os-prefilter {version('os-prefilter')} does not work in {nova}:"
        f" {escape_line(str(error))}. It supports Nova {list_releases()}."
        " Install the release of os-prefilter for this Nova, or remove"
        " os_prefilter.nova.activate from [filter_scheduler]"
        " available_filters."
    )


def nova_release(text: str) -> int | None:
    """Parse a release of Nova, its major version; None if it is not one."""
    return int(text) if re.fullmatch("[1-9][0-9]", text, re.ASCII) else None


def libvirt_settings(conf: cfg.ConfigOpts) -> LibvirtSettings:
    """Return the options of a libvirt host in Nova's configuration.

    :raises ConfigurationError: if it has a value that Nova would refuse
    """
    where = files_read(conf)
    found = {
        name: _register_and_read(conf, where, option, group)
        for name, (group, option) in _LIBVIRT.items()
    }
    found["connection_uri"] = found["connection_uri"].strip()
    found["hw_machine_type"] = _machine_types(found["hw_machine_type"], where)
    found["tpm_secret_security"] = frozenset(found["tpm_secret_security"])
    found["cpu_mode"] = found["cpu_mode"] or ""
    found["cpu_models"] = tuple(found["cpu_models"])
    return LibvirtSettings(**found)


def _machine_types(entries: list[str], where: str) -> Mapping[str, str]:
    """Return the machine type of each architecture.

    An entry that Nova ignores does not stop a host's report.
    """
    found: dict[str, str] = {}
    ignored: dict[str, None] = {}
    for entry in entries:
        architecture, _, machine = entry.partition("=")
        if machine and entry.isprintable() and architecture in _ARCHITECTURES:
            # Nova uses the first one, too.
            found.setdefault(architecture, machine)
        else:
            ignored[quote(entry)] = None
    if ignored:
        LOG.warning(
            "%s: [libvirt] hw_machine_type: ignored, as by Nova: %s. Write"
            " ARCHITECTURE=MACHINE, with an architecture that Nova knows, as"
            " in x86_64=q35.",
            where,
            join_first_names(tuple(ignored), _SHOWN),
        )
    return found
