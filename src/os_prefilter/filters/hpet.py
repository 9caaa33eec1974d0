"""The High Precision Event Timer (specs support-hpet-on-guest and the decision on traits as configuration).

Two ways to ask: the image property ``hw_time_hpet`` ("explicit config, implicit trait"), or the trait itself in the
image, in the flavor or in one of its groups, which the virt driver then takes for its cue. Enabling this filter says
that hosts report the trait, whatever ``reported_traits`` says.
"""

from os_prefilter.asking import chosen
from os_prefilter.errors import FlavorImageConflict
from os_prefilter.extra_specs import trait_key
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import NOTHING, Note, Requirements, require
from os_prefilter.vocabulary import BY_NAME, HPET


def hpet(request: Request, *, options: Options) -> Requirements:
    """Require the trait of the timer on the host.

    :raises FlavorImageConflict: if it is asked for and against at once.
    """
    notes: list[Note] = []
    switch = chosen(request, BY_NAME["time_hpet"], options, notes)
    wanted, unwanted = _explicit(request)
    if switch:
        (wanted if switch[0] == "true" else unwanted).append(switch[1])
    if wanted and unwanted:
        raise FlavorImageConflict(wanted[-1], unwanted[-1])
    asked = require(HPET, " and ".join(wanted)) if wanted else NOTHING
    return asked + Requirements(notes=tuple(notes)) if notes else asked


def _explicit(request: Request) -> tuple[list[str], list[str]]:
    """Return the sources that require and that forbid the trait by its name."""
    wanted = [f"image property trait:{HPET}=required"] if HPET in request.image_traits else []
    unwanted = []
    for suffix, group in request.flavor_groups.items():
        if HPET in group.required:
            wanted.append(f"flavor extra spec {trait_key(HPET, suffix)}=required")
        if HPET in group.forbidden:
            unwanted.append(f"flavor extra spec {trait_key(HPET, suffix)}=forbidden")
    return wanted, unwanted
