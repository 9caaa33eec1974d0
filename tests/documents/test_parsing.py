#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Parsing: any input gives a value or a one-line error that names the file."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import times
from tests.documents.laws import Document, check
from tests.documents.mutations import TOKENS, mutated, tree_file
from tests.documents.table import DOCUMENTS

_LARGEST_SEED = 20 * 1024
_of_each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=str)


def _random(document: Document) -> Random:
    return Random(document.name)  # noqa: S311 - the same inputs in each run


def _check_shown(document: Document, data: bytes) -> bool:
    """Check as the laws do; show the whole input that breaks one."""
    try:
        return check(document, data)
    except Exception as error:
        raise AssertionError(f"{document}: {data!r}") from error


@_of_each_document
def test_a_changed_seed_gives_a_value_or_a_one_line_error_naming_the_file(document: Document) -> None:
    """As each seed does; it is changed from what the parser accepts."""
    random = _random(document)
    seeds = [data for data in document.seeds if _check_shown(document, data) and len(data) <= _LARGEST_SEED]
    for _ in range(times(150)):
        _check_shown(document, mutated(random.choice(seeds), random, document.keys))


@pytest.mark.parametrize("document", [each for each in DOCUMENTS if each.keys], ids=str)
def test_a_tree_of_known_keys_gives_a_value_or_a_one_line_error_naming_the_file(document: Document) -> None:
    random = _random(document)
    for _ in range(times(50)):
        _check_shown(document, tree_file(random, document.keys, is_yaml=document.suffix == ".yaml"))


@_of_each_document
@settings(deadline=None, max_examples=times(8), suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_bytes_give_a_value_or_a_one_line_error_naming_the_file(document: Document, data: st.DataObject) -> None:
    signs = st.sampled_from([*TOKENS, *(key.encode() for key in document.keys[:6])]) | st.text(max_size=5).map(
        str.encode
    )
    check(document, data.draw(st.binary() | st.lists(signs, max_size=12).map(b"".join)))
