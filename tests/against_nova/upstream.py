# SPDX-License-Identifier: Apache-2.0

"""What upstream should know: THE list of the bugs of other projects that were
met and measured, from which the page is made.

``test_upstream.py``, here and in ``tests/services``, runs the reproducer of
each one against the release that is installed, and fails where one is
repaired. This module imports nothing of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

DISTRIBUTIONS = {
    "Cyborg": "openstack-cyborg",
    "Ironic": "ironic",
    "keystoneauth": "keystoneauth1",
    "Nova": "nova",
    "Placement": "openstack-placement",
}
"""Project -> its name on the package index."""
TESTED = {
    "Cyborg": (17, 17),
    "Ironic": (39, 39),
    "keystoneauth": (5, 5),
    "Nova": (27, 34),
    "Placement": (9, 16),
}
"""Project -> the oldest and the newest version against which they are run."""
IN_SERVICES = frozenset({"Cyborg", "Ironic"})
"""Projects that the layer of real services installs."""


@dataclass(frozen=True)
class Bug:
    name: str
    """For the test's ID, and for ``upstream`` of a difference."""
    title: str
    project: str
    happens: str
    repair: str
    since: int = 0
    """The first affected version of the project; 0 if all are that were
    tested.
    """
    repaired: int = 0
    """The first version without it; 0 if there is none yet."""
    known: str = ""
    """Where the project knows of it, or says the opposite."""
    other_test: str = ""
    """The test that shows it, where the reproducer needs more than a call."""

    @property
    def reproducer(self) -> str:
        """The command that shows it."""
        if self.other_test:
            return f"pytest {self.other_test}"
        folder = "services" if self.project in IN_SERVICES else "against_nova"
        return f"pytest tests/{folder}/test_upstream.py -k {self.name}"

    def check(self, *, is_there: bool) -> None:
        """Fail if the installed release is not as the list says."""
        installed = version(DISTRIBUTIONS[self.project])
        number = int(installed.partition(".")[0])
        is_said = self.since <= number and (
            not self.repaired or number < self.repaired
        )
        found = "is there" if is_there else "is repaired"
        assert is_there is is_said, (
            f"{self.project} {installed}: {self.title!r} {found}. Correct"
            " `since` and `repaired` in tests/against_nova/upstream.py."
        )


_OF_CYBORG = "tests/services/cyborg/test_defects_of_cyborg.py"
_IMAGE_METADATA = "[scheduler] image_metadata_prefilter"

BUGS: tuple[Bug, ...] = (
    Bug(
        "viommu-trait",
        "The image prefilter makes trait names of vIOMMU models that do not"
        " exist",
        project="Nova",
        happens=(
            f"With {_IMAGE_METADATA}, hw_viommu_model=intel becomes"
            " COMPUTE_VIOMMU_INTEL. os-traits and the libvirt driver say"
            " COMPUTE_VIOMMU_MODEL_INTEL. So no model is ever required, and"
            " the host fails to build the guest."
        ),
        repair="Make the prefix COMPUTE_VIOMMU_MODEL.",
        known=(
            "the blueprint libvirt-viommu-device promises the trait with MODEL"
        ),
    ),
    Bug(
        "one-value-drops-all",
        "One image property without a trait switches the image prefilter off"
        " for that image",
        project="Nova",
        happens=(
            "transform_image_metadata returns at the first value without a"
            " trait, before it has added the traits of the other properties:"
            " with hw_vif_model=e1000e and hw_emulation_architecture=sparc,"
            " hosts without e1000e pass."
        ),
        repair="Skip that value alone, and log it.",
    ),
    Bug(
        "viommu-of-flavor",
        "The image prefilter ignores hw:viommu_model of the flavor",
        project="Nova",
        happens=(
            "The libvirt driver gives the guest the flavor's model before the"
            " image's; the scheduler requires nothing for it."
        ),
        repair="Read the model as the driver does.",
    ),
    Bug(
        "i686-excludes-all",
        "hw_architecture=i686 excludes each host that can run it",
        project="Nova",
        happens=(
            "The image prefilter requires HW_ARCH_I686. An x86_64 host, which"
            " runs such a guest, reports HW_ARCH_X86_64 alone."
        ),
        repair=(
            "Require HW_ARCH_X86_64, or let the driver report the"
            " architectures of the guests that it runs."
        ),
    ),
    Bug(
        "architecture-not-reported",
        "hw_architecture excludes all hosts, as none reports its architecture",
        project="Nova",
        happens=(
            "The image prefilter requires HW_ARCH_X86_64 for"
            " hw_architecture=x86_64, and no host has the trait."
        ),
        repair="Report it, as Nova 29 does.",
        repaired=29,
    ),
    Bug(
        "emulated-architectures",
        "Most emulated architectures have no trait, so that every host passes",
        project="Nova",
        happens=(
            "28 of the 34 values of hw_emulation_architecture have no"
            " COMPUTE_ARCH trait in os-traits. The image prefilter logs an"
            " error and requires nothing of the image."
        ),
        repair=(
            "Add the traits to os-traits, and refuse a value without one: no"
            " host emulates it."
        ),
    ),
    Bug(
        "other-drivers-excluded",
        "The image prefilter excludes the hosts of all drivers but libvirt",
        project="Nova",
        happens=(
            "hw_vif_model=e1000e requires COMPUTE_NET_VIF_MODEL_E1000E. The"
            " VMware driver has that card and reports no device model; nor"
            " does the fake driver."
        ),
        repair="Report the models in the other drivers.",
    ),
    Bug(
        "sound-models",
        "The scheduler requires the trait of one sound model of eight",
        project="Nova",
        happens=(
            "The libvirt driver reports a trait for each sound model, and"
            " fails to build a guest with a model that the host lacks. The"
            " request filter requires COMPUTE_SOUND_MODEL_VIRTIO alone."
        ),
        repair="Require the trait of the model, whichever it is.",
        since=32,
    ),
    Bug(
        "request-without-image",
        "The image prefilter fails for a request without an image",
        project="Nova",
        happens=(
            "RequestSpec.image may be null. transform_image_metadata then"
            " raises AttributeError, and the server has no reason in its"
            " fault."
        ),
        repair="Return if there is no image.",
    ),
    Bug(
        "misspelt-encryption",
        "A misspelt hw:mem_encryption runs the server unencrypted",
        project="Nova",
        happens=(
            "hw:mem_encryption=ture counts as false. nova-api checks the value"
            " only from microversion 2.86 on. The server is ACTIVE, and its"
            " memory is not encrypted."
        ),
        repair="Parse it strictly, and reject the request.",
    ),
    Bug(
        "isolated-aggregates",
        "Isolated aggregates do not see the traits that request filters"
        " require",
        project="Nova",
        happens=(
            "isolate_aggregates runs before the image prefilter, and counts"
            " the traits of request groups alone, not those of the root. So an"
            " aggregate that is isolated by a trait stays closed to the images"
            " whose property requires that trait."
        ),
        repair="Run it last, and count root_required as well.",
    ),
    Bug(
        "traits-not-logged",
        "The logged resource request leaves out what request filters required",
        project="Nova",
        happens=(
            "ResourceRequest.__str__ shows the request groups without"
            " root_required and root_forbidden. An operator who looks for the"
            " cause of a missing host in the debug log does not find it."
        ),
        repair="Print both.",
    ),
    Bug(
        "no-reason",
        "No candidates, a query that Placement refuses and a Placement that"
        " fails are one message",
        project="Nova",
        happens=(
            "Each ends in NoValidHost with an empty reason: an unknown trait"
            " in a flavor, a full cloud, and a Placement that answers 503."
        ),
        repair=(
            "Tell the three apart: pass on Placement's own message, or at"
            " least which of them it is."
        ),
    ),
    Bug(
        "owner-of-gpus",
        "A flavor's VGPU may be one that Cyborg owns",
        project="Nova",
        happens=(
            "owner_nova_filter requires OWNER_NOVA of the root and of the"
            " groups of PCI devices. resources:VGPU=1 is in another group, and"
            " Placement offers Cyborg's GPU below Nova's host."
        ),
        repair=(
            "Ask for nested resources in a group of their own with OWNER_NOVA,"
            " or forbid OWNER_CYBORG in the group without a suffix."
        ),
        since=34,
    ),
    Bug(
        "owner-at-second-run",
        "A request that requires OWNER_NOVA already gets PCI devices of any"
        " owner",
        project="Nova",
        happens=(
            "If the trait is required of the root, by a flavor or from an"
            " earlier run, owner_nova_filter returns before it comes to the"
            " groups of PCI devices."
        ),
        repair="Return only after the loop over the groups.",
        since=34,
    ),
    Bug(
        "owner-asks-each-time",
        "Each request queries the compute services of every cell, for ever",
        project="Nova",
        happens=(
            "owner_nova_filter looks up the minimum version of nova-compute in"
            " all cells for each request, also when all are upgraded; until"
            " then it logs a warning for each."
        ),
        repair="Keep a positive result in the process; warn once.",
        since=34,
    ),
    Bug(
        "equal-usb-ports",
        "Equal numbers of redirected USB ports in flavor and image conflict",
        project="Nova",
        happens=(
            "The flavor's \"2\" is compared with the image's 2. Each host"
            " refuses the server with FlavorImageConflict."
        ),
        repair="Compare integers.",
        since=32,
    ),
    Bug(
        "usb-without-controller",
        "A guest with USB redirection or USB sound and hw_input_bus=virtio"
        " does not start",
        project="Nova",
        happens=(
            "Without a USB input device or disk the driver writes a USB"
            " controller of model none beside the USB device. libvirt 9.0 and"
            ' 11.3 refuse it: "USB is disabled for this domain".'
        ),
        repair="Count redirected ports and USB sound as USB devices.",
        since=32,
    ),
    Bug(
        "secure-boot-without-uefi",
        "os_secure_boot=required without UEFI starts a guest without Secure"
        " Boot",
        project="Nova",
        happens=(
            "On x86_64 the libvirt driver reads the property only under UEFI."
            " An image without hw_firmware_type=uefi gets a BIOS; the server"
            " is ACTIVE, without Secure Boot and without a word."
        ),
        repair="Reject the request, or imply UEFI.",
    ),
    Bug(
        "cpu-models",
        "A guest may lack a CPU feature for which its host was chosen",
        project="Nova",
        happens=(
            "With several [libvirt] cpu_models, the driver reports the"
            " features of all of them, and chooses the guest's model by the"
            " flavor's traits. A trait that the image requires chooses the"
            " host; the guest gets the first model, without the feature."
        ),
        repair=(
            "Choose the model by the traits of flavor and image, as the"
            " scheduler does."
        ),
    ),
    Bug(
        "buses-added-up",
        "A host reports an IDE bus for guests that cannot have one",
        project="Nova",
        happens=(
            "Traits of buses and video models are added up over all machine"
            " types and architectures. A q35 guest with hw_disk_bus=ide is"
            " scheduled to a host because its pc has IDE, and fails there."
        ),
        repair=(
            "Report what guests of the default machine type have, or let the"
            " trait name the machine type."
        ),
    ),
    Bug(
        "failed-capabilities",
        "An error of libvirt removes a host's traits of buses and video models",
        project="Nova",
        happens=(
            "Host.get_domain_capabilities logs an error of libvirt at level"
            " debug and goes on without that architecture. The driver then"
            " reports each bus and model as absent, and Placement loses the"
            " traits until the error is gone."
        ),
        repair=(
            "Keep the last report if the host's own architecture has no"
            " result; the absence of knowledge is not the absence of a device."
        ),
    ),
    Bug(
        "traits-never-removed",
        "Traits of emulated architectures stay when the emulator is gone",
        project="Nova",
        happens=(
            "The driver reports COMPUTE_ARCH traits only as present. When a"
            " QEMU package is removed, the trait stays in Placement, and"
            " guests of that architecture are scheduled to the host. The"
            " traits of [libvirt] supported_tpm_secret_security (Nova 33) are"
            " reported in the same way."
        ),
        repair="Report each trait of the family, present or absent.",
        since=29,
    ),
    Bug(
        "hpet-with-qemu",
        "hw_time_hpet has no effect with virt_type qemu",
        project="Nova",
        happens=(
            "Timers are written for KVM alone. With virt_type qemu, true and"
            " false give the same guest, which has an HPET on pc and q35."
        ),
        repair="Write the timer for QEMU as well.",
        known=(
            "the specification support-hpet-on-guest (Stein) promises it for"
            " QEMU"
        ),
    ),
    Bug(
        "iso-on-aarch64",
        "An ISO image of an emulated ARM guest gets an IDE CD-ROM",
        project="Nova",
        happens=(
            "The default bus of a CD-ROM follows the host's architecture, not"
            " hw_emulation_architecture. The machine type virt has no IDE, and"
            " the guest does not start."
        ),
        repair="Choose the bus by the architecture of the guest.",
    ),
    Bug(
        "tags-not-required",
        "A server with a device tag fails beside a host that could serve it",
        project="Nova",
        happens=(
            "Hosts report COMPUTE_DEVICE_TAGGING, and no request requires it."
            " A host without it aborts the build: ERROR, without a second try."
        ),
        repair="Require the trait if a network or block device has a tag.",
    ),
    Bug(
        "certificates-not-required",
        "A server with trusted certificates fails beside a host that could"
        " serve it",
        project="Nova",
        happens=(
            "Hosts report COMPUTE_TRUSTED_CERTS, and no request requires it:"
            " the certificates are not in the request spec. A host without it"
            " aborts the build: ERROR, without a second try."
        ),
        repair="Put it into the request spec, and require the trait.",
    ),
    Bug(
        "tpm-model",
        "The model of a TPM is required of no host",
        project="Nova",
        happens=(
            "hw_tpm_model=tpm-crb requires the trait of its version alone."
        ),
        repair="Require the trait of the model, as Nova 30 does.",
        repaired=30,
    ),
    Bug(
        "stateless-without-uefi",
        "hw_firmware_stateless without UEFI is refused",
        project="Nova",
        happens=(
            "An image with hw_firmware_stateless=true boots nowhere unless it"
            " has hw_firmware_type=uefi, although a BIOS has no state."
        ),
        repair="Ignore it, as Nova 34 does.",
        since=30,
        repaired=34,
        known="https://bugs.launchpad.net/nova/+bug/2158967",
    ),
    Bug(
        "foreign-monitors",
        "A compute monitor of another package cannot be loaded",
        project="Nova",
        happens=(
            "MonitorHandler takes the module of an entry point for its"
            " namespace, and fails with KeyError for a module outside"
            " nova.compute.monitors."
        ),
        repair="Use the namespace that the entry point was found in.",
    ),
    Bug(
        "machine-type-of-moves",
        "Resize and cold migration drop the machine type that a server has"
        " kept",
        project="Nova",
        happens=(
            "The driver stores the machine type of the first start with the"
            " server. nova-conductor sends the image of the request spec with"
            " a resize or a cold migration, without that type, and the driver"
            " overwrites it with the default of the next host. A server with"
            " an IDE disk comes back as q35, and does not start."
        ),
        repair="Use the server's own image metadata, as an evacuation does.",
        other_test=(
            "tests/novas/functional/test_machine_types.py -k"
            " libvirt_driver_keeps"
        ),
    ),
    Bug(
        "refused-rebuild",
        "A refused rebuild leaves the new image's properties with the server",
        project="Nova",
        happens=(
            "nova-api replaces the image properties of the server and of its"
            " request spec before the scheduler is asked. If it refuses,"
            " nova-conductor restores the image's ID alone. The next hard"
            " reboot builds the guest from the wrong properties."
        ),
        repair="Restore the properties as well, or write them afterwards.",
        other_test=("tests/novas/functional/test_rebuild.py -k guest_runs_on"),
    ),
    Bug(
        "shares-at-moves",
        "A server with a share moves to a host that cannot attach it",
        project="Nova",
        happens=(
            "A share needs COMPUTE_STORAGE_VIRTIO_FS and"
            " COMPUTE_MEM_BACKING_FILE. A cold migration requires neither:"
            " libvirt refuses the guest on the next host, when its disks are"
            " there and it is down."
        ),
        repair="Require both traits of a server with shares.",
        since=34,
        other_test=(
            "tests/novas/functional/test_server_options.py -k"
            " share_moves_to_any_host"
        ),
    ),
    Bug(
        "amounts-of-two-groups",
        "An allocation candidate may have more than was asked for",
        project="Placement",
        happens=(
            "resources=VGPU:1&resources1=VGPU:2, on a host with two providers"
            " of VGPU: half of the allocation requests have 2 on one provider"
            " and 3 on the other, 5 in place of 3. A server with such a flavor"
            " takes five. Groups with suffixes alone are right."
        ),
        repair=(
            "Do not add up amounts in objects that several candidates share."
        ),
    ),
    Bug(
        "verify-ca-of-other-drivers",
        "A hardware type of another package never leaves enroll",
        project="Ironic",
        happens=(
            "get_verify_ca takes the node's driver for the name of a"
            " configuration group. For a hardware type without such a group"
            " oslo.config raises NoSuchOptError, and each validation fails."
            " With redfish_verify_ca in driver_info it is not reached."
        ),
        repair="Take the group of the hardware type's interface, redfish.",
    ),
    Bug(
        "bios-without-settings",
        "A BIOS that takes no changes fails a step without its reason",
        project="Ironic",
        happens=(
            "Where the BIOS has no @Redfish.Settings, apply_configuration of"
            " the redfish interface fails with \"'NoneType' object has no"
            " attribute 'commit'\"."
        ),
        repair="Say that the machine's BIOS takes no changes.",
        other_test=(
            "tests/services/ironic/test_redfish.py -k without_a_place"
        ),
    ),
    Bug(
        "profiles-without-owner",
        "A device profile cannot name an owner",
        project="Cyborg",
        happens=(
            "The API refuses every trait in a device profile that does not"
            " begin with ``CUSTOM_``, OWNER_CYBORG among them."
        ),
        repair="Take standard traits as well.",
    ),
    Bug(
        "report-never-completed",
        "A report in which Cyborg died is never completed",
        project="Cyborg",
        happens=(
            "Cyborg writes a device to its database, then to Placement only"
            " what differs from the database. If it dies between the two, the"
            " provider stays without inventory or without traits, also after"
            " later reports."
        ),
        repair=(
            "Compare provider, inventory and traits with Placement for devices"
            " that have not changed, too."
        ),
        other_test=f"{_OF_CYBORG} -k never_completed",
    ),
    Bug(
        "trait-lost-in-report",
        "A trait that another service writes during a report is lost",
        project="Cyborg",
        happens=(
            "Cyborg reads the traits of a provider, then its generation, and"
            " writes both back: Placement cannot see that the traits have"
            " changed between the two."
        ),
        repair=(
            "Send the generation that came with the traits, and read again at"
            " a conflict."
        ),
        other_test=f"{_OF_CYBORG} -k is_lost",
    ),
    Bug(
        "gpu-of-nova-reported",
        "A GPU whose virtual GPUs are Nova's is reported as a whole GPU",
        project="Cyborg",
        happens=(
            "The NVIDIA driver reports each GPU that no [vgpu_*]"
            " device_addresses names, also one that Nova divides. Placement"
            " offers it twice."
        ),
        repair="Add an option that lists the whole GPUs to report.",
        other_test=f"{_OF_CYBORG} -k reported_as_a_whole",
    ),
    Bug(
        "unauthorized-discovery",
        "A Session hangs for ever if Keystone answers version discovery with"
        " 401",
        project="keystoneauth",
        happens=(
            "A login holds the plugin's lock while it asks for Keystone's"
            " versions. At a 401, the query is repeated with a token, which"
            " takes the same lock again."
        ),
        repair="Do not repeat a query without authentication with a token.",
    ),
)
