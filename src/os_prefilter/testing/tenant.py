"""Requests with a text of a tenant's wherever one can be."""

from collections.abc import Iterable
from copy import deepcopy

from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.testing.generated import extra_spec_names, property_names
from os_prefilter.testing.requests import request_of

TENANT = "TENANTWROTETHIS"
"""Of characters that a trait may have, so that a filter does not refuse it."""


def written_by_a_tenant(examples: Iterable[RequestSpec]) -> Iterable[RequestSpec]:
    """Yield requests with a text of a tenant's in each place where one can be, alone and beside what is known."""
    examples = tuple(examples)
    for value in (TENANT, TENANT.lower()):
        for name in property_names(examples):
            yield request_of({name: value})
        for name in extra_spec_names(examples):
            yield request_of({}, {name: value})
        yield RequestSpec(
            Flavor(1, 512, name=value, extra_specs={value: "1", f"hw:{value}": value}),
            Image({value: "true", f"hw_{value}": value}, disk_format=value, id=value, name=value),
        )
        for spec in examples:
            yield from _changed(spec, value)


def _changed(spec: RequestSpec, text: str) -> Iterable[RequestSpec]:
    """Yield an example with each of its values made longer by the text, before and after."""
    for joined in ("{old}{text}", "{text}{old}", "{old}-{text}", "{text}"):
        for holder in ("extra_specs", "properties"):
            changed = deepcopy(spec)
            owner = changed.flavor if holder == "extra_specs" else changed.image
            values = dict(getattr(owner, holder, {}))
            for name, old in values.items():
                setattr(owner, holder, {**values, name: joined.format(old=old, text=text)})
                yield deepcopy(changed)
