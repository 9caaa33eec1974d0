# SPDX-License-Identifier: Apache-2.0

"""Query strings of allocation candidates, taken apart strictly: what is not of
Placement's own form is an assertion.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from os_prefilter.request.query import requirements_without_filters
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.request.view import Request

_TRAITS = r"!?[A-Z0-9_]{1,255}(,!?[A-Z0-9_]{1,255})*"
_UUIDS = r"[0-9a-fA-F-]{1,36}(,[0-9a-fA-F-]{1,36})*"
_SUFFIX = r"[a-zA-Z0-9_-]{0,64}"
_FORMS = {
    "limit": r"[1-9][0-9]*",
    "group_policy": "none|isolate",
    "root_required": _TRAITS,
    "same_subtree": r"[a-zA-Z0-9_-]{1,64}(,[a-zA-Z0-9_-]{1,64})*",
    f"resources{_SUFFIX}": (
        r"[A-Z0-9_]{1,255}:[1-9][0-9]{0,9}(,[A-Z0-9_]{1,255}:[1-9][0-9]{0,9})*"
    ),
    f"required{_SUFFIX}": _TRAITS,
    f"member_of{_SUFFIX}": f"!?in:{_UUIDS}",
    f"in_tree{_SUFFIX}": r"[0-9a-fA-F-]{1,36}",
}


class Required(NamedTuple):
    trait: str
    required: bool
    scope: str


def parts(query: str) -> list[tuple[str, str]]:
    """Return the parameters of a query; each must be one that Placement has,
    with a value of its form.
    """
    assert query.isascii()
    assert query.isprintable()
    found = (
        parse_qsl(query, keep_blank_values=True, strict_parsing=True)
        if query
        else []
    )
    for name, value in found:
        assert any(
            re.fullmatch(form, name) and re.fullmatch(wanted, value)
            for form, wanted in _FORMS.items()
        ), (
            name,
            value[:200],
        )
    return found


def traits_in(query: str) -> set[Required]:
    found = set()
    for name, value in parts(query):
        if name == "root_required" or name.startswith("required"):
            scope = (
                ROOT
                if name == "root_required"
                else name.removeprefix("required") or UNSUFFIXED
            )
            found |= {
                Required(each.lstrip("!"), not each.startswith("!"), scope)
                for each in value.split(",")
            }
    return found


def traits_required(request_spec: Any) -> set[Required]:
    """Return the traits that a request spec asks for, by what its own fields,
    its flavor and its image say.
    """
    from_request = {
        Required(item.trait, item.required, item.scope)
        for item in requirements_without_filters(Request(request_spec))
    }
    level = request_spec.request_level_params
    signed = ((True, level.root_required), (False, level.root_forbidden))
    return from_request | {
        Required(trait, required, ROOT)
        for required, traits in signed
        for trait in traits
    }
