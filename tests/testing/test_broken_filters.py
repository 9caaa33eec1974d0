# SPDX-License-Identifier: Apache-2.0

"""Each law of filters is broken by some filter, and its author is told how."""

from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from os_prefilter import NOTHING
from os_prefilter_tools.testing import filter_conformance

pytest_plugins = ["pytester"]

_START = """
import itertools, os, random, socket, time
from functools import cache
from pathlib import Path
from os_prefilter import NOTHING, Note, as_boolean, Request, Requirement, Requirements, require
from os_prefilter_tools.testing import filter_conformance, request_of

ASKED = request_of({"acme": "yes"}, {"acme:level": "3"})
NUMBERS = itertools.count()

"""
_PURE = '''
def acme(request: Request) -> Requirements:
    """Require what acme says."""
    if not as_boolean(request.image_property("acme")):
        return NOTHING
{body}
'''
_NOVA = '''
def acme(context, request_spec):
    """Require what acme says."""
    if request_spec.image is None or not as_boolean(request_spec.image.properties.get("acme")):
        return False
{body}
    return True
'''
_END = "\nTestAcme = filter_conformance(acme, asks=ASKED)\n"


def _filter(body: str, shape: str = _PURE) -> str:
    return (
        _START + shape.format(body=indent(dedent(body).strip(), "    ")) + _END
    )


_BROKEN = [
    (
        "same_request",
        'return require("CUSTOM_A", f"acme, the {next(NUMBERS)}. time")',
        "Keep no state",
    ),
    (
        "left_as_it_was",
        """
        request._spec.image.properties["acme"] = "done"
        return require("CUSTOM_A", "acme")
        """,
        "changes the request",
    ),
    (
        "odd_value",
        (
            'return require("CUSTOM_A",'
            ' str(int(request.extra_spec("acme:level") or 0)))'
        ),
        "with ValueError",
    ),
    (
        "raise_but",
        'return request.extra_spec("acme:level") == "3"',
        "returned a bool, not Requirements",
    ),
    (
        "names_its_source",
        'return require("CUSTOM_A", "")',
        "its source is empty",
    ),
    (
        "names_its_source",
        (
            'return require("CUSTOM_A", f"level'
            " {request.extra_spec('acme:level')}\")"
        ),
        "quoting.quote",
    ),
    (
        "what_a_tenant_wrote",
        """
        level = str(request.extra_spec("acme:level"))
        if not (level.isalnum() and level.isascii()):
            return NOTHING
        return require(f"CUSTOM_LEVEL_{level.upper()}", "acme:level")
        """,
        "from what a tenant wrote",
    ),
    (
        "valid_names",
        'return require("COMPUTE_NO_SUCH_TRAIT", "acme")',
        "no trait of os-traits",
    ),
    (
        "nothing_outside",
        'return require("CUSTOM_A", Path(os.devnull).read_text() or "acme")',
        "input or output: open(",
    ),
    (
        "nothing_outside",
        'return require("CUSTOM_A", str(socket.gethostbyname("localhost")))',
        "socket.gethostbyname",
    ),
    (
        "same_request",
        'return require("CUSTOM_A", f"since {time.time()}")',
        "read no clock",
    ),
    (
        "applied_twice",
        'return require(f"CUSTOM_A{len(request.root_required)}", "acme")',
        "request that it has been",
    ),
    (
        "spelling_of_a_boolean",
        (
            'return require("CUSTOM_A", "acme") if'
            ' request.image_property("acme") == "yes" else NOTHING'
        ),
        (
            "returned another result for acme=True than for acme='yes'. Read"
            " booleans with os_prefilter.as_boolean."
        ),
    ),
    (
        "same_request",
        """
        return require("CUSTOM_A", "acme") if random.random() < 0.95 else NOTHING
        """,
        "no random numbers",
    ),
    (
        "asks_for_something",
        "return NOTHING",
        "requires nothing for a request of asks",
    ),
]
_NEEDS_A_FLAVOR = _filter('return require("CUSTOM_A", "acme")').replace(
    "if not as_boolean",
    'if request.flavor_attribute("memory_mb") < 5 or not as_boolean',
)
_BROKEN_NOVA = [
    (
        "spelling_of_a_boolean",
        (
            'request_spec.image.properties["acme"] is True and'
            ' request_spec.root_required.add("CUSTOM_A")'
        ),
        "returned another result for acme=True than for acme='yes'",
    ),
    (
        "nothing_outside",
        (
            'request_spec.root_required.add("CUSTOM_A") or'
            " Path(os.devnull).read_text()"
        ),
        "or output: open(",
    ),
    (
        "applied_twice",
        'request_spec.root_required.add(f"CUSTOM_A{len(request_spec.root_required)}")',
        "changes a request",
    ),
]


def _outcome(
    pytester: pytest.Pytester, code: str, law: str
) -> tuple[int, int, str]:
    """Return how many tests passed and failed, and what pytest prints."""
    # A name that no other test imports in this process.
    path = pytester.makepyfile(**{f"test_{pytester.path.name}": code})
    result = pytester.runpytest_inprocess(
        path, "-k", law, "-p", "no:cacheprovider", "-p", "no:randomly"
    )
    outcomes = result.parseoutcomes()
    return (
        outcomes.get("passed", 0),
        outcomes.get("failed", 0),
        result.stdout.str(),
    )


@pytest.mark.parametrize(
    ("law", "code", "message"),
    [
        *((law, _filter(body), message) for law, body, message in _BROKEN),
        *(
            (law, _filter(body, _NOVA), message)
            for law, body, message in _BROKEN_NOVA
        ),
        ("fields_that_are_unset", _NEEDS_A_FLAVOR, ""),
    ],
    ids=lambda value: value if len(value) < 40 else "",
)
def test_a_filter_that_breaks_a_law_fails_its_test_with_the_reason(
    law: str, code: str, message: str, pytester: pytest.Pytester
) -> None:
    passed, failed, printed = _outcome(pytester, code, law)
    assert (passed, failed) == (0, 1), printed
    assert message in printed
    assert "Traceback" not in printed


def test_filter_that_no_request_triggers_fails_conformance_with_advice(
    pytester: pytest.Pytester,
) -> None:
    code = _filter('return require("CUSTOM_A", "acme")').replace(
        ", asks=ASKED", ""
    )
    _, failed, printed = _outcome(pytester, code, "asks_for_something")
    assert failed == 1
    assert (
        "Give one for which it requires something: filter_conformance(...,"
        " asks=request_of(" in printed
    )


def test_invalid_filter_fails_conformance_with_the_error_of_a_service_start() -> (
    None
):
    filters: list[tuple[Any, str]] = [
        ("acme_missing", "there are accelerators,"),
        (lambda request, *, level: NOTHING, "facts={name: value}"),
        (Path, "expected a function"),
    ]
    for plugin, message in filters:
        laws: Any = filter_conformance(plugin)
        with pytest.raises(pytest.fail.Exception, match=message):
            laws().test_it_loads()
    laws = filter_conformance(lambda request, level: NOTHING)
    with pytest.raises(
        pytest.fail.Exception,
        match="options and facts are keyword-only parameters",
    ):
        laws().test_it_asks_for_something()


@pytest.mark.parametrize("shape", [_PURE, _NOVA])
def test_conforming_filter_passes_in_one_process(
    shape: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the Nova way: without the three laws that are not for such filters.
    An interpreter takes a second to start.
    """
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda *_, **__: pytest.fail("a process was started"),
    )
    body = 'return require("CUSTOM_A", "image property acme=yes")'
    if shape == _NOVA:
        body = 'request_spec.root_required.add("CUSTOM_A")'
    passed, failed, printed = _outcome(pytester, _filter(body, shape), "")
    assert (passed, failed) == (12 if shape == _PURE else 9, 0), printed
