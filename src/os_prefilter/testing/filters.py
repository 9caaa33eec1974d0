"""The laws of request filters as ready-made tests, one for each law."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from pickle import PicklingError
from typing import Any, ClassVar

import os_traits
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from os_prefilter.conf.options import Options, effective_templates
from os_prefilter.errors import ConfigurationError, DocumentError, PrefilterError, RequestRejected
from os_prefilter.request.requirements import Requirement, Requirements
from os_prefilter.request.spec import RequestSpec
from os_prefilter.testing.fixtures import ALL_REPORTED, loaded, pipeline_of
from os_prefilter.testing.fresh import answer, answers_elsewhere
from os_prefilter.testing.generated import (
    any_request,
    odd_requests,
    stored_by_nova,
    with_fields_unset,
)
from os_prefilter.testing.guard import Forbidden, guarded
from os_prefilter.testing.requests import request_of
from os_prefilter.testing.subject import Subject, broken, told, twin
from os_prefilter.testing.tenant import TENANT, written_by_a_tenant
from os_prefilter.vocabulary.model import CUSTOM_PREFIX, is_trait_name

# The same requests at each run: what conforms today does so tomorrow. Their number is that of hypothesis' profile.
_any = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors, HealthCheck.data_too_large],
)
_SEEDS = (1, 2)


def filter_conformance(
    plugin: str | Callable[..., Any],
    *,
    asks: RequestSpec | Iterable[RequestSpec] = (),
    never_asks: bool = False,
    options: Options = ALL_REPORTED,
    facts: Mapping[str, object] | None = None,
) -> type:
    """Return a class of tests, one for each law of filters, to be assigned to a name that begins with ``Test``.

    :param plugin: the name of an entry point, or the filter itself, a function of a module
    :param asks: requests for which it asks for something; needed if no value of the vocabulary makes it do so
    :param never_asks: whether it asks for nothing, whatever the request
    :param options: by default all traits may be asked for
    :param facts: the values of the facts that it declares as needs
    """
    some = (asks,) if isinstance(asks, RequestSpec) else tuple(asks)
    subject = Subject(plugin, options, facts or {}, some)
    try:
        each = loaded(plugin, subject.facts)
    except ConfigurationError as error:
        return type("Conformance", (_NotLoaded,), {"problem": str(error)})
    laws = _EachFilter if each.nova_style else _PureFilter
    made = {"subject": subject, "name": each.name, "never_asks": never_asks, "any_request": any_request(some)}
    return type("Conformance", (laws,), made)


class _NotLoaded:
    problem: ClassVar[str]

    def test_it_loads_as_a_filter(self) -> None:
        """A scheduler that enables it starts."""
        advice = "A fact is given to filter_conformance(..., facts={name: value}). After a change of entry points the "
        broken(f"{self.problem} {advice}package must be installed again (pip install -e .).")


class _EachFilter:
    """What holds for filters of both kinds."""

    subject: ClassVar[Subject]
    name: ClassVar[str]
    never_asks: ClassVar[bool]
    any_request: ClassVar[st.SearchStrategy[RequestSpec]]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _is_quiet(cls) -> Iterator[None]:
        """Thousands of warnings about odd values would hide what is wrong."""
        logger = logging.getLogger("os_prefilter")
        before = logger.level
        logger.setLevel(logging.CRITICAL)
        yield
        logger.setLevel(before)

    def _says(self, what: str, spec: Any) -> str:
        return f"The request filter {self.name!r} {what} The request: {told(spec)}."

    def _answer(self, spec: Any, guard: Any = nullcontext) -> Requirements | str:
        """Return what it answers to a copy of the request."""
        try:
            return answer(self.subject, deepcopy(spec), guard)
        except PrefilterError as error:
            problem = str(error)
        # Out here, so that no traceback of this kit is shown with it.
        return broken(self._says(f"must answer, or reject the request with a RequestRejected. {problem}", spec))

    def _asked(self, spec: Any) -> tuple[Requirement, ...]:
        found = self._answer(spec)
        return () if isinstance(found, str) else found.asked

    def test_it_loads_and_says_what_it_does(self) -> None:
        """'os-prefilter filter list' shows the first line of its docstring."""
        if not loaded(self.subject.plugin, self.subject.facts).summary:
            broken(
                f"The request filter {self.name!r} has no docstring: 'os-prefilter filter list' shows its first line."
            )

    def test_it_asks_for_something(self) -> None:
        """Else the other tests would prove nothing."""
        asking = [spec for spec in self.subject.requests if self._asked(spec)]
        if self.never_asks:
            return broken(self._says("is said to ask for nothing, and does.", asking[0])) if asking else None
        for spec in self.subject.asks:
            if spec not in asking:
                broken(self._says("asks for nothing, and is said to ask for something.", spec))
        if not asking:
            broken(
                f"The request filter {self.name!r} asked for nothing in all requests that were tried, so the tests "
                f"prove nothing. Give one for which it asks: filter_conformance(..., asks=request_of({{...}}))."
            )
        return None

    def test_the_same_request_gets_the_same_answer(self) -> None:
        """Again, in another order, in another thread: it keeps nothing and reads nothing that changes."""
        requests = self.subject.requests
        first = [self._answer(spec) for spec in requests]
        with ThreadPoolExecutor(1) as thread:
            again = list(thread.map(self._answer, reversed(requests)))[::-1]
        self._compare(requests, first, again, "another answer when it was asked again, in another order")

    def test_another_process_gets_the_same_answer(self) -> None:
        """It keeps nothing in globals, and does not depend on the order of a set."""
        requests = self.subject.requests
        here = [self._answer(spec) for spec in requests]
        for seed in _SEEDS:
            try:
                there = answers_elsewhere(self.subject, requests, seed)
            except (PicklingError, AttributeError, TypeError) as error:
                broken(
                    f"The request filter {self.name!r}, or one of its facts, cannot be taken to another process: "
                    f"{error}. Write the filter as a function of a module, and give facts that can be pickled."
                )
            except RuntimeError as error:
                broken(f"The request filter {self.name!r} fails in another process: {error}.")
            self._compare(requests, here, there, "another answer in another process")

    def _compare(self, requests: list[Any], first: list[Any], again: list[Any], how: str) -> None:
        for spec, one, other in zip(requests, first, again, strict=True):
            if one != other:
                broken(
                    self._says(f"gave {how}: {one} and then {other}. Keep no state, sort what comes out of sets.", spec)
                )

    def test_no_odd_value_makes_it_raise(self) -> None:
        """Each value that it looks at is left out, or is a list, a number, 20,000 characters, half a character."""
        for spec in odd_requests(self.subject.asks):
            self._answer(spec)

    @_any
    @given(st.data())
    def test_no_request_makes_it_raise_but_to_reject_it(self, data: st.DataObject) -> None:
        """Values of odd types and sizes, no image, Nova's stored requests: RequestRejected, or an answer."""
        spec = data.draw(self.any_request)
        self._answer(spec)
        try:
            stored = stored_by_nova(spec)
        except DocumentError:
            return
        self._answer(stored)

    @_any
    @given(st.data())
    def test_applied_twice_it_changes_nothing_more(self, data: st.DataObject) -> None:
        """Schedulers apply filters again when they try again."""
        spec = deepcopy(data.draw(self.any_request))
        pipeline = pipeline_of(self.subject.plugin, options=self.subject.options, facts=self.subject.facts)
        try:
            pipeline.apply(spec)
        except RequestRejected:
            return
        once = deepcopy(spec)
        try:
            pipeline.apply(spec)
        except RequestRejected as error:
            broken(self._says(f"rejects a request that it has been applied to: {error}", once))
        if spec != once:
            broken(self._says(f"changes a request that it has been applied to: {once} became {spec}.", once))

    @_any
    @given(st.data())
    def test_traits_are_valid_names(self, data: st.DataObject) -> None:
        """Placement refuses the whole query for a trait that it cannot have."""
        spec = data.draw(self.any_request)
        standard = os_traits.get_traits()
        for item in self._asked(spec):
            if not is_trait_name(item.trait) or not (item.trait.startswith(CUSTOM_PREFIX) or item.trait in standard):
                broken(
                    self._says(
                        f"asks for {item.trait!a}: no trait of os-traits, nor a name that begins with CUSTOM_.", spec
                    )
                )

    def test_no_trait_holds_what_a_tenant_wrote(self) -> None:
        """Names of traits are constants of the code: what tenants write is compared, never built into a name."""
        for spec in written_by_a_tenant(self.subject.asks):
            for item in self._asked(spec):
                if TENANT in item.trait.upper().replace("_", ""):
                    broken(self._says(f"builds the trait {item.trait} from what a tenant wrote.", spec))

    def test_it_touches_nothing_outside_the_request(self) -> None:
        """No files, no network, no processes, no clock, no dice: a scheduler waits for it, and keeps its answer."""
        # What this library loads once is none of the filter's.
        effective_templates(None)
        self._answer(request_of())
        for spec in self.subject.requests:
            try:
                self._answer(spec, guarded)
            except Forbidden as error:
                broken(self._says(f"must be a function of the request and its facts, but {error}.", spec))


class _PureFilter(_EachFilter):
    """What holds for filters that answer with Requirements; those of the Nova way change the request themselves."""

    def test_fields_that_are_unset_do_not_make_it_raise(self) -> None:
        """Nova's objects have fields that are not set."""
        for spec in with_fields_unset():
            self._answer(spec)

    @_any
    @given(st.data())
    def test_the_request_is_left_as_it_was(self, data: st.DataObject) -> None:
        """The pipeline applies its answer, or nothing if a later filter fails."""
        spec = deepcopy(data.draw(self.any_request))
        for each in (spec, *map(deepcopy, self.subject.asks)):
            before = deepcopy(each)
            answer(self.subject, each)
            # By repr: a NaN is not equal to itself.
            if each != before and repr(each) != repr(before):
                broken(
                    self._says(f"changes the request: {before} became {each}. Return what it needs instead.", before)
                )

    def test_every_requirement_names_its_source(self) -> None:
        """What in the request asked for it, on one line: 'os-prefilter explain' and errors show it."""
        for each in (*self.subject.requests, *odd_requests(self.subject.asks)):
            for item in self._asked(each):
                if not item.source.strip():
                    broken(
                        self._says(
                            f"does not say what in the request asks for {item.trait}: its source is empty.", each
                        )
                    )
                if not item.source.isprintable():
                    advice = "put what a tenant wrote through os_prefilter.common.quoting.quote."
                    broken(self._says(f"has a source that is not one printable line, {item.source!a}: {advice}", each))

    def test_an_answer_that_is_kept_is_right_for_the_next_request(self) -> None:
        """A pipeline keeps answers by what filters can see: two requests that look the same get the same."""
        for spec in self.subject.requests:
            kept, fresh = (
                pipeline_of(self.subject.plugin, options=self.subject.options, facts=self.subject.facts)
                for _ in range(2)
            )
            other = twin(spec)
            _outcome(kept, spec)
            if _outcome(kept, other) != _outcome(fresh, other):
                broken(self._says("reads what is not part of the view that it is given (os_prefilter.Request).", other))


def _outcome(pipeline: Any, spec: RequestSpec) -> Any:
    try:
        return pipeline.apply(deepcopy(spec)).requirements
    except RequestRejected as error:
        return str(error)
