"""Requirements that Nova itself derives from a request (``nova/scheduler/utils.py``, ``ResourceRequest``).

A value that Nova does not know is an error there, and here: the query must not require less than the user did.
"""

from dataclasses import replace

from os_prefilter.common.errors import ImpossibleCombination
from os_prefilter.common.quoting import quote
from os_prefilter.request.named_traits import written_requirements
from os_prefilter.request.requirements import UNSUFFIXED, Requirement
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of, value_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.options import Options

BY_REQUEST = "request"
"""The ``filter`` of a requirement from the flavor, the image or a request group."""

_AS_NOVA = Options(unknown_values=UnknownValues.REJECT)

# Nova's query requires secure boot beside a BIOS, too: that this makes no sense, filters and the late check say.
_SECURE_BOOT = BY_NAME["secure_boot"]
_SECURE_BOOT_WITH_ANY_FIRMWARE = replace(_SECURE_BOOT, beside={})

_ENCRYPTION_MODEL = BY_NAME["mem_encryption_model"]
_MACHINE = "hw_machine_type"
_ENCRYPTED_MACHINE = "q35"


def requirements_without_filters(request: Request) -> tuple[Requirement, ...]:
    """Return all traits that a request requires or forbids without any filter, with their sources.

    :raises RequestRejected: for a value that Nova would reject, or a flavor and an image that contradict each other.
    """
    rows = [_SECURE_BOOT_WITH_ANY_FIRMWARE if row is _SECURE_BOOT else row for row in rows_of(request, "query")]
    requirements = (
        *written_requirements(request),
        *require_rows(request, rows, _AS_NOVA, UNSUFFIXED).requirements,
    )
    _check_encrypted_machine(request)
    return tuple(item._replace(filter=BY_REQUEST) for item in requirements)


def _check_encrypted_machine(request: Request) -> None:
    """Raise ImpossibleCombination as Nova refuses it: by a part of the machine type's name, and only if it has one."""
    machine = request.image_property(_MACHINE)
    if machine is None or _ENCRYPTED_MACHINE in str(machine):
        return
    model = value_of(request, _ENCRYPTION_MODEL, UnknownValues.REJECT)
    if model:
        raise ImpossibleCombination(str(model.source), f"image property {_MACHINE}={quote(machine)}")
