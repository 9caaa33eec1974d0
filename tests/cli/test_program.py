"""The program as a whole: which commands there are, and what a start imports."""

import subprocess
import sys

from os_prefilter.cli.program import Program

_SCRIPT = """
import sys
from os_prefilter.cli.main import main
main(["explain", "--property", "hw_vif_model=igb"])
print(*(name for name in sys.modules if name.startswith(("os_prefilter.", "placement", "openstack"))))
"""


def test_each_entry_point_is_a_command_that_loads() -> None:
    """With cliff's own names: those of the entry points, with spaces."""
    manager = Program("0").command_manager
    assert {"audit", "capabilities report", "explain", "rules check"} <= dict(manager).keys()
    for name in dict(manager):
        assert manager.find_command(name.split())[1] == name


def test_a_command_imports_no_other_command() -> None:
    """Else each would wait for what all of them need together."""
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=600)
    imported = done.stdout.splitlines()[-1].split()
    assert "COMPUTE_NET_VIF_MODEL_IGB" in done.stdout
    assert "os_prefilter.cli.explain" in imported
    for other in ("audit", "diagnose", "report", "demo", "offer"):
        assert f"os_prefilter.cli.{other}" not in imported
    assert not [name for name in imported if name.partition(".")[0] in ("placement", "openstack")]
