"""The few options of a nova.conf that say what a libvirt host can do, read without importing Nova.

Names and defaults are those of Nova 34 (``nova/conf/libvirt.py``, ``nova/conf/compute.py``); a test compares them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oslo_config import cfg

from os_prefilter.common.quoting import escape_line, join_names, quote
from os_prefilter.documents.files import check_readable
from os_prefilter.errors import ConfigurationError

VIRT_TYPES = ("kvm", "lxc", "parallels", "qemu")
"""The values of [libvirt] virt_type that Nova 34 has."""

_CPU_MODES = ("host-model", "host-passthrough", "custom", "none")
_IMAGES_TYPES = ("raw", "flat", "qcow2", "lvm", "rbd", "ploop", "default")
_TPM_SECRET_SECURITY = ("user", "host", "deployment")

_LIBVIRT = [
    # Nova's default is kvm; None, where nothing is configured, lets the probe look whether the host has it.
    cfg.StrOpt("virt_type"),
    cfg.StrOpt("connection_uri", default=""),
    cfg.ListOpt("hw_machine_type"),
    cfg.BoolOpt("swtpm_enabled", default=False),
    cfg.ListOpt("supported_tpm_secret_security", default=list(_TPM_SECRET_SECURITY)),
    cfg.StrOpt("images_type", default="default"),
    cfg.StrOpt("cpu_mode"),
]
_DEFAULT = [cfg.BoolOpt("force_raw_images", default=True)]
_QUOTED_LINE = re.compile(""": ['"]""")
_LONGEST_REASON = 500


@dataclass(frozen=True, kw_only=True)
class LibvirtSettings:
    """What nova.conf says of a libvirt host; without arguments, Nova's defaults."""

    virt_type: str | None = None
    """None: it does not say."""
    connection_uri: str = ""
    """Empty: the usual one of the virt type."""
    hw_machine_type: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Guest architecture -> the machine type of guests that ask for none."""
    swtpm_enabled: bool = False
    tpm_secret_security: frozenset[str] = frozenset(_TPM_SECRET_SECURITY)
    images_type: str = "default"
    force_raw_images: bool = True
    cpu_mode: str = ""
    """Empty: it does not say."""
    built_by_nova: bool = False
    """Whether a nova-compute runs with it and builds the guests. This and the next the file does not say."""
    nova_release: int | None = None
    """The release of that Nova; None if it is not known."""


def installed_nova() -> int | None:
    """Return the release of the package nova beside this one, 34 for 2026.2; None if it is not known."""
    try:
        # A damaged installation has no version.
        major, _, _ = str(version("nova")).partition(".")
    except PackageNotFoundError:
        return None
    return nova_release(major)


def nova_release(text: str) -> int | None:
    """Return a release of Nova that somebody wrote as its major version; None for what is none."""
    return int(text) if re.fullmatch("[1-9][0-9]", text, re.ASCII) else None


def libvirt_settings(path: str | Path | None = None) -> LibvirtSettings:
    """Return the settings in a nova.conf; None stands for one that sets nothing.

    :raises DocumentError: if it is a named pipe or a device, which could keep its reader waiting.
    :raises ConfigurationError: if the file cannot be read, or has a value that Nova would not take.
    """
    where = escape_line(str(path))
    conf = cfg.ConfigOpts()
    conf.register_opts(_LIBVIRT, group="libvirt")
    conf.register_opts(_DEFAULT)
    files = [] if path is None else [str(path)]
    if path is not None:
        check_readable(path)
    try:
        conf([], project="nova", default_config_files=files, default_config_dirs=[], use_env=False)
    except (cfg.Error, OSError, ValueError) as error:
        # Without its cause, which has the line, in which a password may be.
        raise ConfigurationError(f"{where}: it cannot be read as a nova.conf: {reason_of(error)}") from None
    return _Options(conf, where).settings()


class _Options:
    """A parsed nova.conf, and its name for messages."""

    def __init__(self, conf: Any, where: str) -> None:
        self._conf = conf
        self._where = where

    def settings(self) -> LibvirtSettings:
        """Return the checked values.

        :raises ConfigurationError: if one is wrong.
        """
        virt_type = self._one("virt_type", VIRT_TYPES)
        images_type = self._one("images_type", _IMAGES_TYPES)
        security = self._value("supported_tpm_secret_security")
        for value in security:
            self._check("supported_tpm_secret_security", value, _TPM_SECRET_SECURITY)
        return LibvirtSettings(
            virt_type=virt_type,
            connection_uri=self._value("connection_uri").strip(),
            hw_machine_type=self._machine_types(),
            swtpm_enabled=self._value("swtpm_enabled"),
            tpm_secret_security=frozenset(security),
            images_type=images_type,
            force_raw_images=self._value("force_raw_images", "DEFAULT"),
            cpu_mode=self._one("cpu_mode", _CPU_MODES) or "",
        )

    def _machine_types(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for entry in self._value("hw_machine_type") or ():
            architecture, _, machine = entry.partition("=")
            if not architecture or not machine or not entry.isprintable():
                raise self._wrong("hw_machine_type", f"{quote(entry)} is not ARCHITECTURE=MACHINE, as in x86_64=q35.")
            # Nova takes the first one, too.
            found.setdefault(architecture, machine)
        return MappingProxyType(found)

    def _one(self, option: str, known: Iterable[str]) -> Any:
        value = self._value(option)
        if value is not None:
            self._check(option, value, known)
        return value

    def _check(self, option: str, value: str, known: Iterable[str]) -> None:
        if value not in known:
            raise self._wrong(option, f"{quote(value)} is no value that Nova has: {join_names(known)}. Correct it.")

    def _value(self, option: str, group: str = "libvirt") -> Any:
        try:
            return self._conf[option] if group == "DEFAULT" else self._conf[group][option]
        except (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.TemplateSubstitutionError):
            # Without its cause, which has what follows the $: the rest of a password, in a URI.
            problem = "a $ in its value refers to an option that is not read here. Write the value out, and $$ for a $."
            raise self._wrong(option, problem, group) from None
        except (cfg.Error, ValueError) as error:
            raise self._wrong(option, f"{reason_of(error)} Correct it.", group) from error
        except RecursionError as error:
            raise self._wrong(option, "it refers to itself. Write the value out.", group) from error

    def _wrong(self, option: str, problem: str, group: str = "libvirt") -> ConfigurationError:
        return ConfigurationError(f"{self._where}: [{group}] {option}: {problem}")


def reason_of(error: Exception) -> str:
    """Return what oslo.config or a library that reads by it says: one sentence, and not where it says it from."""
    text = " ".join(str(error).split()).rpartition(" is not valid: ")[2]
    if isinstance(error, cfg.ConfigFileParseError):
        # The line itself follows in quotes, and may have a password in it.
        text = _QUOTED_LINE.split(text, maxsplit=1)[0]
    return escape_line(text[:_LONGEST_REASON]).rstrip(".") + "."
