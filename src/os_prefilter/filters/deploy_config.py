"""How a bare-metal node is to be configured (mail "Reset Configurations in Baremetals Post Provisioning").

Explicit config, implicit trait: ``deploy-config:hyperthreading=enabled`` requires a node that can switch hyperthreading
on; it says nothing about whether it is on now.
"""

from os_prefilter.asking import ask
from os_prefilter.errors import UnknownValue
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Note, Requirements
from os_prefilter.texts import shown
from os_prefilter.vocabulary import rows_asked_by

_PREFIX = "deploy-config:"
_ROWS = rows_asked_by("deploy_config")
_TYPES = frozenset(row.extra_spec for row in _ROWS)


def deploy_config(request: Request, *, options: Options) -> Requirements:
    """Require the capability that the configuration needs; "disabled" asks for nothing.

    :raises UnknownValue: for an unknown value or configuration, if ``unknown_values`` is ``reject``.
    """
    unknown = unknown_configurations(request)
    if unknown and options.reject_unknown_values:
        raise UnknownValue("flavor extra spec", unknown[0], (str(key) for key in sorted(filter(None, _TYPES))))
    notes = tuple(
        Note("flavor extra specs", f"unknown configuration {shown(key)}: not asked for", warn=True) for key in unknown
    )
    answer = ask(request, _ROWS, options)
    return answer + Requirements(notes=notes) if notes else answer


def unknown_configurations(request: Request) -> list[str]:
    """Return the flavor's configurations that nobody knows."""
    return [key for key in request.extra_specs if str(key).startswith(_PREFIX) and key not in _TYPES]
