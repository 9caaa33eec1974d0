"""What a filter asks a request about."""

import random
from collections.abc import Iterator

import pytest

from os_prefilter import Flavor, Image, RequestSpec, allocation_candidates_query
from os_prefilter.conf.options import Options
from os_prefilter.errors import RequestRejected, UnknownValue
from os_prefilter.filters.loading import installed_filters
from os_prefilter.filters.vocabulary_filter import Questions, ask, questions_of
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.model import Row, UnknownValues

_ODD = ("zz", "", None, True)
_PROPERTIES = [(str(row.image_property), value) for row in ROWS if row.image_property for value in (*row.values, *_ODD)]
_LEGACY = [(name, value) for row in ROWS for name in row.legacy_names for value in row.values]
_EXTRA_SPECS = [(str(row.extra_spec), value) for row in ROWS if row.extra_spec for value in (*row.values, "zz", "")]
_TRAITS = sorted(trait for row in ROWS for trait in row.traits)
_NAMES = sorted({*installed_filters(), "query"})


class _All(Questions):
    """All rows, whatever the request says."""

    def about(self, _request: Request) -> list[Row]:
        """Return all."""
        return list(self.rows)


def _specs(number: int) -> Iterator[RequestSpec]:
    chance = random.Random(number)  # noqa: S311 - the same each time
    for _ in range(400):
        properties: dict[str, object] = dict(chance.choices(_PROPERTIES, k=chance.randint(0, 5)))
        if chance.random() < 0.3:
            properties |= [chance.choice(_LEGACY)]
        extra_specs = dict(chance.choices(_EXTRA_SPECS, k=chance.randint(0, 4)))
        if chance.random() < 0.3:
            properties[f"trait:{chance.choice(_TRAITS)}"] = "required"
        if chance.random() < 0.3:
            suffix, value = chance.choice(["", "_X"]), chance.choice(["required", "forbidden"])
            extra_specs[f"trait{suffix}:{chance.choice(_TRAITS)}"] = value
        image = Image(properties, chance.choice([None, "qcow2", "zz"]))
        yield RequestSpec(Flavor(1, 1, extra_specs=extra_specs), image, is_bfv=chance.random() < 0.3)


@pytest.mark.parametrize("unknown", [UnknownValues.SKIP, UnknownValues.REJECT])
@pytest.mark.parametrize("name", _NAMES)
def test_rows_skipped_for_a_request_would_not_change_the_filters_result(name: str, unknown: UnknownValues) -> None:
    questions = questions_of(name)
    every, options = _All(questions.rows), Options(unknown_values=unknown, reported_traits=("*",))
    for spec in _specs(_NAMES.index(name)):
        assert _answer(spec, questions, options) == _answer(spec, every, options), spec


def _answer(spec: RequestSpec, questions: Questions, options: Options) -> Requirements | str:
    try:
        return ask(Request(spec), questions, options)
    except RequestRejected as error:
        return str(error)


def test_unknown_hw_firmware_type_is_rejected_without_hw_firmware_stateless() -> None:
    """The firmware of which Nova knows nothing is an error also without ``hw_firmware_stateless``."""
    with pytest.raises(UnknownValue, match="hw_firmware_type"):
        allocation_candidates_query(RequestSpec(Flavor(1, 1), Image({"hw_firmware_type": "zz"})))
