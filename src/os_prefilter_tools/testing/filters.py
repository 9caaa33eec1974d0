# SPDX-License-Identifier: Apache-2.0

"""The laws of request filters as ready-made tests, one for each law."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, ClassVar, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from os_prefilter.common.errors import (
    ConfigurationError,
    PrefilterError,
    RequestRejected,
)
from os_prefilter.common.trait_names import (
    CUSTOM_PREFIX,
    is_trait_name,
    standard_traits,
)
from os_prefilter.pipeline.decision import DecisionBuilder
from os_prefilter.pipeline.filter_calls import bind, call_filter
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import (
    AggregateRequirement,
    Preference,
    Requirement,
    Requirements,
)
from os_prefilter.request.spec import RequestSpec
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.operators.offer.offered_values import spec_with
from os_prefilter_tools.testing import generated
from os_prefilter_tools.testing.builders import (
    ALL_REPORTED,
    pipeline_of,
    request_of,
)
from os_prefilter_tools.testing.checks import (
    Forbidden,
    NotLoaded,
    fail,
    forbid_io,
)
from os_prefilter_tools.testing.law import choices

# The same requests at each run, as many as hypothesis' profile says: a filter
# that conforms today does so tomorrow.
_any = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.differing_executors,
        HealthCheck.data_too_large,
    ],
)
_MOST_CHARACTERS = 400
# One of Nova's objects, and those of Glance and of JSON. "1" and "on" may mean
# something else.
_SPELLINGS = ((True, "true", "True", "yes"), (False, "false", "False", "no"))


def filter_conformance(
    plugin: str | Callable[..., Any],
    *,
    asks: RequestSpec | Iterable[RequestSpec] = (),
    never_asks: bool = False,
    options: Options = ALL_REPORTED,
    facts: Mapping[str, object] | None = None,
) -> type:
    """Return a class of tests, one for each law of filters.

    Assign it to a name that begins with ``Test``.

    :param plugin: the name of an entry point, or the filter itself
    :param asks: requests for which it requires something; needed if no value
        of the vocabulary makes it do so
    :param never_asks: whether it requires nothing, whatever the request
    :param options: by default, hosts report all traits
    :param facts: values of the deployment facts that it needs, by name
    """
    some = (asks,) if isinstance(asks, RequestSpec) else tuple(asks)
    try:
        pipeline = pipeline_of(plugin, options=options, facts=facts)
    except ConfigurationError as error:
        advice = (
            "A fact is given to filter_conformance(..., facts={name: value})."
        )
        return type(
            "Conformance", (NotLoaded,), {"problem": f"{error} {advice}"}
        )
    members = {
        "pipeline": pipeline,
        "filter": pipeline.filters[0],
        "facts": facts or {},
        "asks": some,
        # Many times: what is decided at random is the same half of the time.
        "requests": [
            *some * 200,
            *(spec_with((choice,), {}) for choice in choices()),
        ],
        "never_asks": never_asks,
        "any_request": generated.any_request(some),
    }
    return type(
        "Conformance",
        (_EachFilter if pipeline.filters[0].nova_style else _PureFilter,),
        members,
    )


class _EachFilter:
    """The laws of all filters, also of those in Nova's style."""

    pipeline: ClassVar[Service]
    filter: ClassVar[LoadedFilter]
    facts: ClassVar[Mapping[str, object]]
    asks: ClassVar[tuple[RequestSpec, ...]]
    requests: ClassVar[list[RequestSpec]]
    """The author's, then each value of the vocabulary."""
    never_asks: ClassVar[bool]
    any_request: ClassVar[st.SearchStrategy[RequestSpec]]

    # A class method has no name of its own on Python 3.9.
    @pytest.fixture(autouse=True, scope="class", name="_silence_warnings")
    @classmethod
    def _silence_warnings(cls) -> Iterator[None]:
        """Thousands of warnings about odd values would hide the failure."""
        logger = logging.getLogger("os_prefilter")
        before = logger.level
        logger.setLevel(logging.CRITICAL)
        yield
        logger.setLevel(before)

    def _fail(self, what: str, spec: Any = None) -> NoReturn:
        request = ""
        if spec is not None:
            text = (
                f"{getattr(spec, 'image', None)!a},"
                f" {getattr(spec, 'flavor', None)!a}"
            )
            if len(text) > _MOST_CHARACTERS:
                text = f"{text[:_MOST_CHARACTERS]}..."
            request = f" The request: {text}."
        fail(f"The request filter {self.filter.name!r} {what}{request}")

    def _answer(
        self, spec: Any, guard: Any = nullcontext
    ) -> Requirements | str:
        """Return the result for a request, or the message of its rejection.

        The filter may change the request.

        :param guard: the context in which the filter is called
        """
        try:
            builder = DecisionBuilder(Request(spec))
            call = bind(self.filter, self.pipeline.options, self.facts)
            with guard():
                return call_filter(self.filter, call, builder)
        except RequestRejected as error:
            return f"{type(error).__name__}: {error}"
        except PrefilterError as error:
            problem = str(error)
        # Outside of the handler, so that no traceback of this kit is shown.
        return self._fail(
            "must return Requirements, or reject the request with a"
            f" RequestRejected. {problem}",
            spec,
        )

    def _required(
        self, spec: Any
    ) -> tuple[Requirement | Preference | AggregateRequirement, ...]:
        """Return what it requires and prefers."""
        answer = self._answer(deepcopy(spec))
        return (
            ()
            if isinstance(answer, str)
            else (
                *answer.requirements,
                *answer.preferences,
                *answer.aggregates,
            )
        )

    def test_it_loads_and_says_what_it_does(self) -> None:
        """'os-prefilter filter list' shows the first line of its docstring."""
        if not self.filter.summary:
            self._fail(
                "has no docstring: 'os-prefilter filter list' shows its first"
                " line."
            )

    def test_it_asks_for_something(self) -> None:
        """Else the other tests would prove nothing."""
        asking = [spec for spec in self.requests if self._required(spec)]
        if self.never_asks and asking:
            self._fail(
                "requires something, although never_asks is set.", asking[0]
            )
        if self.never_asks:
            return
        for spec in self.asks:
            if spec not in asking:
                self._fail("requires nothing for a request of asks.", spec)
        if not asking:
            self._fail(
                "required nothing in all requests that were tried, so the"
                " tests prove nothing. Give one for which it requires"
                " something: filter_conformance(..., asks=request_of({...}))."
            )

    def test_the_same_request_gets_the_same_answer(self) -> None:
        """Again, in another order, in another thread.

        It keeps nothing and reads nothing that changes.
        """
        first = list(map(self._answer, deepcopy(self.requests)))
        with ThreadPoolExecutor(1) as thread:
            again = list(
                thread.map(self._answer, deepcopy(self.requests[::-1]))
            )[::-1]
        for spec, one, other in zip(self.requests, first, again):
            if one != other:
                what = (
                    "returned another result when it was called again, in"
                    f" another order: {one} and then {other}"
                )
                self._fail(
                    f"{what}. Keep no state, and read no clock and no random"
                    " numbers.",
                    spec,
                )

    def test_each_spelling_of_a_boolean_gets_the_same_answer(self) -> None:
        """An image property is True in Nova, and a text elsewhere.

        Glance and JSON have "true" or "yes".
        """
        for spec in self.requests:
            for name, value, others in _booleans(spec):
                for other in others:
                    changed = generated.with_value(spec, name, other)
                    if _meaning(self._answer(changed)) != _meaning(
                        self._answer(deepcopy(spec))
                    ):
                        what = (
                            f"returned another result for {name}={other!r}"
                            f" than for {name}={value!r}"
                        )
                        self._fail(
                            f"{what}. Read booleans with"
                            " os_prefilter.as_boolean.",
                            spec,
                        )

    def test_no_odd_value_makes_it_raise(self) -> None:
        """Each value that it reads is left out, or odd.

        A list, a number, 20,000 characters, half a character.
        """
        for spec in generated.odd_requests(self.asks):
            self._answer(spec)

    @_any
    @given(st.data())
    def test_no_request_makes_it_raise_but_to_reject_it(
        self, data: st.DataObject
    ) -> None:
        """Values of odd types and sizes, or no image.

        The result is RequestRejected, or requirements.
        """
        self._answer(deepcopy(data.draw(self.any_request)))

    @_any
    @given(st.data())
    def test_applied_twice_it_changes_nothing_more(
        self, data: st.DataObject
    ) -> None:
        """Schedulers apply filters again when they try again."""
        spec = deepcopy(data.draw(self.any_request))
        try:
            self.pipeline.apply(spec)
        except RequestRejected:
            return
        once = deepcopy(spec)
        try:
            self.pipeline.apply(spec)
        except RequestRejected as error:
            self._fail(
                f"rejects a request that it has been applied to: {error}", once
            )
        if spec != once:
            self._fail(
                f"changes a request that it has been applied to: {once} became"
                f" {spec}.",
                once,
            )

    def test_traits_are_valid_names_and_never_what_a_tenant_wrote(
        self,
    ) -> None:
        """Placement refuses the whole query for an impossible trait.

        Names are constants of the code.
        """
        standard = standard_traits()
        for spec in (
            *self.requests,
            *generated.written_by_a_tenant(self.asks),
        ):
            for item in self._required(spec):
                trait = (
                    ""
                    if isinstance(item, AggregateRequirement)
                    else item.trait
                )
                if generated.TENANT in trait.upper().replace("_", ""):
                    self._fail(
                        f"builds the trait {trait} from what a tenant wrote.",
                        spec,
                    )
                if trait and not (
                    is_trait_name(trait)
                    and (trait.startswith(CUSTOM_PREFIX) or trait in standard)
                ):
                    self._fail(
                        f"requires {trait!a}: no trait of os-traits, nor a"
                        " name that begins with CUSTOM_.",
                        spec,
                    )

    def test_it_touches_nothing_outside_the_request(self) -> None:
        """No files, no network, no processes.

        A scheduler waits for the filter, and caches its result.
        """
        # The library loads these once; the filter is not to blame.
        self._answer(request_of())
        for spec in self.requests:
            try:
                self._answer(deepcopy(spec), forbid_io)
            except Forbidden as error:
                self._fail(
                    "must be a function of the request and its facts, but"
                    f" {error}.",
                    spec,
                )


class _PureFilter(_EachFilter):
    """The laws of filters that return Requirements.

    Those of the Nova way change the request themselves.
    """

    def test_fields_that_are_unset_do_not_make_it_raise(self) -> None:
        """Nova's objects have fields that are not set."""
        for spec in generated.with_fields_unset():
            self._answer(spec)

    @_any
    @given(st.data())
    def test_the_request_is_left_as_it_was(self, data: st.DataObject) -> None:
        """The pipeline applies its result, or nothing if another fails."""
        for spec in (data.draw(self.any_request), *self.asks):
            before, after = deepcopy(spec), deepcopy(spec)
            self._answer(after)
            # By repr: a NaN is not equal to itself.
            if after != before and repr(after) != repr(before):
                self._fail(
                    f"changes the request: {before} became {after}. Return"
                    " what it needs instead.",
                    before,
                )

    def test_every_requirement_names_its_source(self) -> None:
        """The part of the request that requires it, on one line.

        'os-prefilter explain' and errors show it.
        """
        for spec in (*self.requests, *generated.odd_requests(self.asks)):
            for item in self._required(spec):
                if not item.source.strip():
                    what = (
                        "aggregates"
                        if isinstance(item, AggregateRequirement)
                        else item.trait
                    )
                    self._fail(
                        f"does not name the source of {what}: its source is"
                        " empty.",
                        spec,
                    )
                if not item.source.isprintable():
                    advice = (
                        "put what a tenant wrote through"
                        " os_prefilter.common.quoting.quote."
                    )
                    self._fail(
                        "has a source that is not one printable line,"
                        f" {item.source!a}: {advice}",
                        spec,
                    )


def _booleans(
    spec: RequestSpec,
) -> Iterator[tuple[str, object, Iterable[object]]]:
    """Yield image properties that look like booleans.

    Name, value, and other spellings of it.
    """
    for name, value in spec.image.properties.items() if spec.image else ():
        for spellings in _SPELLINGS:
            if isinstance(value, (bool, str)) and value in spellings:
                yield name, value, spellings


def _meaning(answer: Requirements | str) -> Any:
    """Return the result of a filter without its sources and messages."""
    if isinstance(answer, str):
        return answer.partition(":")[0]
    traits = {
        (item.trait, item.required, item.scope) for item in answer.requirements
    }
    aggregates = {
        (item.aggregates, item.required) for item in answer.aggregates
    }
    return traits, aggregates, {item.trait for item in answer.preferences}
