"""Large guests go to the hosts that are kept for them, and all others stay
away from these.

Else small guests fill each host a little, and no host has room for a large
one.
"""

from __future__ import annotations

from os_prefilter import Request, Requirements, forbid, require

LARGE = 256 * 1024
"""MiB of memory from which on a guest is large."""
TRAIT = "CUSTOM_ACME_LARGE_GUESTS"


def large_guests(request: Request) -> Requirements:
    """Require CUSTOM_ACME_LARGE_GUESTS for guests of 256 GiB or more, and
    forbid it for others.
    """
    memory = request.flavor_attribute("memory_mb")
    if isinstance(memory, int) and memory >= LARGE:
        return require(TRAIT, "a flavor with 256 GiB of memory or more")
    return forbid(TRAIT, "a flavor with less than 256 GiB of memory")
