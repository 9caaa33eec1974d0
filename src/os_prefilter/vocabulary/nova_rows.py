# SPDX-License-Identifier: Apache-2.0

"""Rows that Nova itself translates into traits in its query.

So does ``os_prefilter.request.query``.
"""

from __future__ import annotations

from dataclasses import replace

from os_prefilter.common.trait_names import Trait
from os_prefilter.vocabulary.filter_rows import HYPERTHREADING
from os_prefilter.vocabulary.model import (
    Constraints,
    DependsOn,
    Incompatible,
    Precedence,
    Row,
    Term,
    nothing,
    switch,
    terms,
)

# Nova reads os_secure_boot under UEFI alone (_configure_guest_by_virt_type in
# nova/virt/libvirt/driver.py). Guests of aarch64 have UEFI by default, those
# of x86_64 do not; a request that names no architecture may get a host of
# either.
_UEFI = ("firmware_type", ("uefi",))
_ARCHITECTURE_NAMED = ("architecture", ("aarch64", "i686", "x86_64"))
_WITHOUT_UEFI = (
    Incompatible(
        "firmware_type",
        "",
        unless=(_UEFI, _ARCHITECTURE_NAMED),
        on=Trait("HW_ARCH_X86_64"),
    ),
    Incompatible("architecture", "x86_64", unless=(_UEFI,)),
)

_ROWS = (
    Row(
        "tpm_version",
        terms(
            "COMPUTE_SECURITY_TPM", "1.2 2.0", **{"1.2": "1_2", "2.0": "2_0"}
        ),
        image_property="hw_tpm_version",
        extra_spec="hw:tpm_version",
    ),
    Row(
        "tpm_model",
        terms(
            "COMPUTE_SECURITY_TPM",
            "tpm-crb tpm-tis",
            **{"tpm-crb": "CRB", "tpm-tis": "TIS"},
        ),
        image_property="hw_tpm_model",
        extra_spec="hw:tpm_model",
        depends_on=DependsOn("tpm_version", default="tpm-tis"),
        constraints={
            "tpm-crb": Constraints(incompatible=(("tpm_version", ("1.2",)),))
        },
    ),
    Row(
        "secure_boot",
        {
            "required": Term(Trait("COMPUTE_SECURITY_UEFI_SECURE_BOOT")),
            "optional": nothing("it is used where the host has it"),
            "disabled": nothing("every host can leave it off"),
        },
        image_property="os_secure_boot",
        extra_spec="os:secure_boot",
        # Nova silently ignores it.
        constraints={
            "required": Constraints(
                incompatible=(("firmware_type", ("bios",)),),
                incompatible_in_nova=_WITHOUT_UEFI,
            )
        },
    ),
    Row(
        "firmware_stateless",
        switch(
            "COMPUTE_SECURITY_STATELESS_FIRMWARE",
            "stateful firmware is the usual one",
        ),
        image_property="hw_firmware_stateless",
        # It is UEFI's; Nova ignores the property without it.
        depends_on=DependsOn("firmware_type", frozenset(("uefi",))),
    ),
    Row(
        "maxphysaddr_mode",
        terms(
            "COMPUTE_ADDRESS_SPACE", "emulate passthrough", emulate="EMULATED"
        ),
        image_property="hw_maxphysaddr_mode",
        extra_spec="hw:maxphysaddr_mode",
    ),
    Row(
        "pci_numa_affinity_policy",
        {
            "socket": Term(Trait("COMPUTE_SOCKET_PCI_NUMA_AFFINITY")),
            "required": nothing("Nova's NUMA topology filter decides it"),
            "preferred": nothing("a preference excludes no host"),
            "legacy": nothing("Nova's NUMA topology filter decides it"),
        },
        image_property="hw_pci_numa_affinity_policy",
        extra_spec="hw:pci_numa_affinity_policy",
    ),
    Row(
        "mem_encryption",
        {
            "true": nothing(
                "it requires the resource MEM_ENCRYPTION_CONTEXT, and its"
                " model a trait"
            ),
            "false": nothing("not encrypting is possible everywhere"),
        },
        image_property="hw_mem_encryption",
        extra_spec="hw:mem_encryption",
        constraints={"true": Constraints(needs=(_UEFI,))},
    ),
    Row(
        "mem_encryption_model",
        terms("HW_CPU_X86", "amd-sev amd-sev-es amd-sev-snp intel-tdx"),
        image_property="hw_mem_encryption_model",
        extra_spec="hw:mem_encryption_model",
        depends_on=DependsOn(
            "mem_encryption", frozenset(("true",)), default="amd-sev"
        ),
        constraints={
            "amd-sev-snp": Constraints(
                needs=(("firmware_stateless", ("true",)),)
            ),
            "intel-tdx": Constraints(
                needs=(
                    ("firmware_stateless", ("true",)),
                    ("video_model", ("none",)),
                )
            ),
        },
    ),
    Row(
        "cpu_policy",
        {
            "shared": nothing("shared CPUs are possible everywhere"),
            "dedicated": nothing("it requires the resource PCPU"),
            "mixed": nothing("it requires the resources VCPU and PCPU"),
        },
        image_property="hw_cpu_policy",
        extra_spec="hw:cpu_policy",
        precedence=Precedence(
            flavor_over={
                "dedicated": frozenset(("shared", "mixed")),
                "mixed": frozenset(("shared",)),
            }
        ),
    ),
    Row(
        "cpu_thread_policy",
        {
            "require": Term(HYPERTHREADING),
            "isolate": Term(HYPERTHREADING, required=False),
            "prefer": nothing("a preference excludes no host"),
        },
        image_property="hw_cpu_thread_policy",
        extra_spec="hw:cpu_thread_policy",
        precedence=Precedence(
            flavor_over={"prefer": frozenset(("require", "isolate"))}
        ),
    ),
    Row(
        "emulator_threads_policy",
        {
            "share": nothing("they run on shared CPUs"),
            "isolate": nothing(
                "it requires one more PCPU, where CPUs are pinned"
            ),
        },
        extra_spec="hw:emulator_threads_policy",
    ),
)

TRANSLATED_BY_NOVA: tuple[Row, ...] = tuple(
    replace(row, required_by=("query",)) for row in _ROWS
)
"""The rows that a request requires without any filter."""
