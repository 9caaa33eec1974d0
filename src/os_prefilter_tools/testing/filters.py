"""The laws of request filters as ready-made tests, one for each law."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from os_prefilter.common.errors import ConfigurationError, DocumentError, PrefilterError, RequestRejected
from os_prefilter.common.trait_names import CUSTOM_PREFIX, is_trait_name, standard_traits
from os_prefilter.request.requirements import AggregateRequirement, Preference, Requirement, Requirements
from os_prefilter.request.spec import Destination, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter.service.report_scope import EVERY_TRAIT
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.testing.builders import ALL_REPORTED, request_of
from os_prefilter_tools.testing.checks import FilterUnderTest, Forbidden, NotLoaded, fail, forbid_io
from os_prefilter_tools.testing.generated import (
    TENANT,
    any_request,
    odd_requests,
    stored_by_nova,
    with_fields_unset,
    with_value,
    written_by_a_tenant,
)
from os_prefilter_tools.testing.law import choices, spec_with

# The same requests at each run, as many as hypothesis' profile says: a filter that conforms today does so tomorrow.
_any = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors, HealthCheck.data_too_large],
)
_MOST_CHARACTERS = 400
# One of Nova's objects, and those of Glance and of JSON. "1" and "on" may mean something else.
_SPELLINGS = ((True, "true", "True", "yes"), (False, "false", "False", "no"))


def filter_conformance(
    plugin: str | Callable[..., Any],
    *,
    asks: RequestSpec | Iterable[RequestSpec] = (),
    never_asks: bool = False,
    options: Options = ALL_REPORTED,
    facts: Mapping[str, object] | None = None,
) -> type:
    """Return a class of tests, one for each law of filters, to be assigned to a name that begins with ``Test``.

    :param plugin: the name of an entry point, or the filter itself
    :param asks: requests for which it requires something; needed if no value of the vocabulary makes it do so
    :param never_asks: whether it requires nothing, whatever the request
    :param options: by default, hosts report all traits
    :param facts: values of the deployment facts that it needs, by name
    """
    some = (asks,) if isinstance(asks, RequestSpec) else tuple(asks)
    subject = FilterUnderTest(plugin, options, facts or {})
    try:
        each = subject.filter
    except ConfigurationError as error:
        advice = "A fact is given to filter_conformance(..., facts={name: value})."
        return type("Conformance", (NotLoaded,), {"problem": f"{error} {advice}"})
    members = {
        "subject": subject,
        "asks": some,
        "requests": [*some, *(spec_with((choice,)) for choice in choices(EVERY_TRAIT.emulated))],
        "never_asks": never_asks,
        "any_request": any_request(some),
    }
    return type("Conformance", (_EachFilter if each.nova_style else _PureFilter,), members)


class _EachFilter:
    """The laws of filters of both kinds."""

    subject: ClassVar[FilterUnderTest]
    asks: ClassVar[tuple[RequestSpec, ...]]
    requests: ClassVar[list[RequestSpec]]
    """The author's, then each value of the vocabulary."""
    never_asks: ClassVar[bool]
    any_request: ClassVar[st.SearchStrategy[RequestSpec]]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _silence_warnings(cls) -> Iterator[None]:
        """Thousands of warnings about odd values would hide the failure."""
        logger = logging.getLogger("os_prefilter")
        before = logger.level
        logger.setLevel(logging.CRITICAL)
        yield
        logger.setLevel(before)

    def _fail(self, what: str, spec: Any = None) -> NoReturn:
        request = f" The request: {_describe(spec)}." if spec is not None else ""
        fail(f"The request filter {self.subject.filter.name!r} {what}{request}")

    def _answer(self, spec: Any, guard: Any = nullcontext) -> Requirements | str:
        """Return its answer to a copy of the request."""
        try:
            return self.subject.answer(deepcopy(spec), guard)
        except PrefilterError as error:
            problem = str(error)
        # Outside of the handler, so that no traceback of this kit is shown.
        return self._fail(f"must answer, or reject the request with a RequestRejected. {problem}", spec)

    def _requirements(self, spec: Any) -> tuple[Requirement | Preference, ...]:
        """Return the traits that it requires, and those that it prefers."""
        answer = self._answer(spec)
        return () if isinstance(answer, str) else (*answer.requirements, *answer.preferences)

    def _aggregates(self, spec: Any) -> tuple[AggregateRequirement, ...]:
        answer = self._answer(spec)
        return () if isinstance(answer, str) else answer.aggregates

    def test_it_loads_and_says_what_it_does(self) -> None:
        """'os-prefilter filter list' shows the first line of its docstring."""
        if not self.subject.filter.summary:
            self._fail("has no docstring: 'os-prefilter filter list' shows its first line.")

    def test_it_asks_for_something(self) -> None:
        """Else the other tests would prove nothing."""
        asking = [spec for spec in self.requests if self._requirements(spec) or self._aggregates(spec)]
        if self.never_asks and asking:
            self._fail("requires something, although never_asks is set.", asking[0])
        for spec in self.asks:
            if spec not in asking and not self.never_asks:
                self._fail("requires nothing for a request of asks.", spec)
        if not asking and not self.never_asks:
            self._fail(
                "required nothing in all requests that were tried, so the tests prove nothing. Give one for which it "
                "requires something: filter_conformance(..., asks=request_of({...}))."
            )

    def test_the_same_request_gets_the_same_answer(self) -> None:
        """Again, in another order, in another thread: it keeps nothing and reads nothing that changes."""
        first = [self._answer(spec) for spec in self.requests]
        with ThreadPoolExecutor(1) as thread:
            again = list(thread.map(self._answer, reversed(self.requests)))[::-1]
        for spec, one, other in zip(self.requests, first, again, strict=True):
            if one != other:
                what = f"gave another answer when it was called again, in another order: {one} and then {other}"
                self._fail(f"{what}. Keep no state, and read no clock and no random numbers.", spec)

    def test_each_spelling_of_a_boolean_gets_the_same_answer(self) -> None:
        """An image property is True in Nova's objects, and "true" or "yes" in Glance and in JSON."""
        for spec in self.requests:
            for name, value, others in _booleans(spec):
                for other in others:
                    changed = with_value(spec, name, other)
                    if _meaning(self._answer(changed)) != _meaning(self._answer(spec)):
                        what = f"gave another answer to {name}={other!r} than to {name}={value!r}"
                        self._fail(f"{what}. Read booleans with os_prefilter.as_boolean.", spec)

    def test_no_odd_value_makes_it_raise(self) -> None:
        """Each value that it reads is left out, or is a list, a number, 20,000 characters, half a character."""
        for spec in odd_requests(self.asks):
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
        pipeline = self.subject.pipeline
        try:
            pipeline.apply(spec)
        except RequestRejected:
            return
        once = deepcopy(spec)
        try:
            pipeline.apply(spec)
        except RequestRejected as error:
            self._fail(f"rejects a request that it has been applied to: {error}", once)
        if spec != once:
            self._fail(f"changes a request that it has been applied to: {once} became {spec}.", once)

    @_any
    @given(st.data())
    def test_traits_are_valid_names(self, data: st.DataObject) -> None:
        """Placement refuses the whole query for a trait that it cannot have."""
        spec = data.draw(self.any_request)
        standard = standard_traits()
        for item in self._requirements(spec):
            if not is_trait_name(item.trait) or not (item.trait.startswith(CUSTOM_PREFIX) or item.trait in standard):
                self._fail(
                    f"requires {item.trait!a}: no trait of os-traits, nor a name that begins with CUSTOM_.", spec
                )

    def test_no_trait_holds_what_a_tenant_wrote(self) -> None:
        """Names of traits are constants of the code: what tenants write is compared, never built into a name."""
        for spec in written_by_a_tenant(self.asks):
            for item in self._requirements(spec):
                if TENANT in item.trait.upper().replace("_", ""):
                    self._fail(f"builds the trait {item.trait} from what a tenant wrote.", spec)

    def test_it_touches_nothing_outside_the_request(self) -> None:
        """No files, no network, no processes: a scheduler waits for it, and keeps its answer."""
        # The library loads these once; the filter is not to blame.
        choices(EVERY_TRAIT.emulated)
        self._answer(request_of())
        for spec in self.requests:
            try:
                self._answer(spec, forbid_io)
            except Forbidden as error:
                self._fail(f"must be a function of the request and its facts, but {error}.", spec)


class _PureFilter(_EachFilter):
    """The laws of filters that return Requirements; those of the Nova way change the request themselves."""

    def test_fields_that_are_unset_do_not_make_it_raise(self) -> None:
        """Nova's objects have fields that are not set."""
        for spec in with_fields_unset():
            self._answer(spec)

    @_any
    @given(st.data())
    def test_the_request_is_left_as_it_was(self, data: st.DataObject) -> None:
        """The pipeline applies its answer, or nothing if a later filter fails."""
        for spec in (data.draw(self.any_request), *self.asks):
            before, after = deepcopy(spec), deepcopy(spec)
            self.subject.answer(after)
            # By repr: a NaN is not equal to itself.
            if after != before and repr(after) != repr(before):
                self._fail(f"changes the request: {before} became {after}. Return what it needs instead.", before)

    def test_every_requirement_names_its_source(self) -> None:
        """The part of the request that requires it, on one line: 'os-prefilter explain' and errors show it."""
        for spec in (*self.requests, *odd_requests(self.asks)):
            for item in (*self._requirements(spec), *self._aggregates(spec)):
                if not item.source.strip():
                    what = "aggregates" if isinstance(item, AggregateRequirement) else item.trait
                    self._fail(f"does not name the source of {what}: its source is empty.", spec)
                if not item.source.isprintable():
                    advice = "put what a tenant wrote through os_prefilter.common.quoting.quote."
                    self._fail(f"has a source that is not one printable line, {item.source!a}: {advice}", spec)

    def test_an_answer_that_is_kept_is_right_for_the_next_request(self) -> None:
        """A pipeline keeps answers by what filters can see: two requests that look the same get the same."""
        for spec in self.requests:
            kept, other = self.subject.pipeline, _twin(spec)
            _outcome(kept, spec)
            if _outcome(kept, other) != _outcome(self.subject.pipeline, other):
                self._fail("reads what is not part of the view that it is given (os_prefilter.Request).", other)


def _booleans(spec: RequestSpec) -> Iterator[tuple[str, object, Iterable[object]]]:
    """Yield the image properties that look like booleans: name, value, and other spellings of it."""
    for name, value in spec.image.properties.items() if spec.image else ():
        for spellings in _SPELLINGS:
            if isinstance(value, (bool, str)) and value in spellings:
                yield name, value, spellings


def _meaning(answer: Requirements | str) -> Any:
    """Return what a filter answers, without the words."""
    if isinstance(answer, str):
        return answer.partition(":")[0]
    traits = {(item.trait, item.required, item.scope) for item in answer.requirements}
    aggregates = {(item.aggregates, item.required) for item in answer.aggregates}
    return traits, aggregates, {item.trait for item in answer.preferences}


def _outcome(pipeline: Service, spec: RequestSpec) -> Any:
    try:
        decision = pipeline.apply(deepcopy(spec))
    except RequestRejected as error:
        return str(error)
    return decision.requirements, decision.aggregates, decision.preferences


def _twin(spec: RequestSpec) -> RequestSpec:
    """Return a request that looks the same to filters, and differs in everything else."""
    image = spec.image and replace(spec.image, id="another-id", name="another-name")
    return replace(
        spec,
        flavor=replace(spec.flavor, name="another-name"),
        image=image or Image(name="another-name"),
        requested_destination=Destination(aggregates=["another"]),
        request_level_params=replace(copy(spec.request_level_params), same_subtree=[["a", "b"]]),
    )


def _describe(spec: Any) -> str:
    flavor, image = getattr(spec, "flavor", None), getattr(spec, "image", None)
    parts = [f"image properties {getattr(image, 'properties', None)!a}" if image is not None else "no image"]
    if disk_format := getattr(image, "disk_format", None):
        parts.append(f"disk_format {disk_format!a}")
    parts.append(f"flavor extra specs {getattr(flavor, 'extra_specs', None)!a}")
    parts += ["boots from a volume"] * bool(getattr(spec, "is_bfv", False))
    text = ", ".join(parts)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
