"""Each parser of outside input, on its seeds and on some thousand mutations of them; ``tox -e fuzz`` goes further."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.conftest import times
from tests.exhaustive.fuzz.mutations import mutated
from tests.exhaustive.fuzz.seeds import seeds
from tests.exhaustive.fuzz.targets import TARGETS, log_is_watched

_MUTATIONS = times(300)
_MOST = 20 * 1024


@pytest.fixture(autouse=True)
def _log_is_watched() -> Iterator[None]:
    with log_is_watched():
        yield


@pytest.mark.parametrize("name", TARGETS)
def test_each_seed_keeps_the_laws_of_its_target(name: str) -> None:
    assert seeds(name)
    for data in seeds(name):
        TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutated_document_loads_or_is_refused_in_one_line(name: str) -> None:
    """The same mutations in each run; a document that fails is printed whole."""
    random = Random(name)
    small = [data for data in seeds(name) if len(data) <= _MOST]
    for number in range(_MUTATIONS):
        data = mutated(random.choice(small), random)
        try:
            TARGETS[name](data)
        except Exception as error:
            raise AssertionError(f"mutation {number} of {name}: {data!r}") from error
