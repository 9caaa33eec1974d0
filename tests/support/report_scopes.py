"""Sections ``[prefilter]`` of schedulers and compute hosts, and which traits hosts report by them."""

from pathlib import Path
from tempfile import TemporaryDirectory

from os_prefilter.adapters.nova_conf import load_conf
from os_prefilter.service.report_scope import ReportScope, configured_scope

_DROP_IN = Path(__file__).parents[2] / "docs" / "examples" / "nova" / "os-prefilter.conf"
RECOMMENDED = "\n" + _DROP_IN.read_text(encoding="utf-8").partition("\n\n[prefilter]")[2].join(("[prefilter]", ""))
"""What the documentation recommends."""


def scope_of(section: str) -> ReportScope:
    """Return the traits that hosts report whose nova.conf has these lines."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "nova.conf"
        path.write_text(section, encoding="utf-8")
        return configured_scope(load_conf(path))
