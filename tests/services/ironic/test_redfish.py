#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""A real conductor with our hardware type, and machines behind a real Redfish service."""

import subprocess
import sys

import pytest

from tests.services.ironic.bmc import Bmc
from tests.services.ironic.ironics import Ironic


def _enroll(ironic: Ironic, bmc: Bmc, machine: str, driver: str = "prefilter-redfish") -> str:
    """Have Ironic know a machine by its address and password, and nothing else."""
    created = ironic.baremetal.create_node(
        driver=driver,
        driver_info=bmc.driver_info(machine),
        properties={"cpu_arch": "x86_64"},
        provision_state="enroll",
        boot_interface="redfish-virtual-media",
        deploy_interface="custom-agent",
    )
    return str(created.id)


@pytest.mark.parametrize("driver", ["redfish", "prefilter-redfish"])
def test_node_of_the_hardware_type_is_verified_and_available(driver: str, ironic: Ironic, bmc: Bmc) -> None:
    node = _enroll(ironic, bmc, bmc.add_machine(), driver)
    ironic.provision(node, "manage")
    assert ironic.bios(node)["LogicalProc"] == "Enabled"
    ironic.provision(node, "provide")
    validated = ironic.send("GET", f"/v1/nodes/{node}/validate").json()
    for interface in ("bios", "boot", "deploy", "management", "power"):
        assert validated[interface] == {"result": True}


def test_hardware_type_has_the_options_of_ironics_own() -> None:
    """In a process of its own: Ironic's options and Nova's have the same names."""
    program = """
from ironic.conf import CONF
CONF([], default_config_files=[], default_config_dirs=[])
CONF.set_override("verify_ca", "/etc/ca.pem", "redfish")
CONF.set_override("connect_timeout", 7, "redfish")
from os_prefilter.adapters.ironic.conductor import RedfishHardware
RedfishHardware()
print({**CONF["prefilter-redfish"]} == {**CONF.redfish})
"""
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert printed == "True\n"
