"""Device models and guest types that an image asks for, as traits of the host (spec image-metadata-prefiltering)."""

from os_prefilter.conf.options import Options
from os_prefilter.filters.vocabulary_filter import Questions, ask, keep_off, questions_of
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.machine_types import families_without

# Nova asks for their traits, which say nothing of the machine type.
_STATED = Questions(
    row for row in ROWS if "query" in row.asked_by and any(families_without(row.name, each) for each in row.values)
)


def image_metadata(request: Request, *, options: Options) -> Requirements:
    """Require what the host must emulate: VIF, video, buses, architecture, vIOMMU, sound, USB, firmware, machine type.

    :raises ImpossibleCombination: for a device that the machine type asked for can never have.
    """
    return ask(request, questions_of("image_metadata"), options) + keep_off(request, _STATED, options)
