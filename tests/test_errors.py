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

"""Messages are one short ASCII line, whatever a tenant wrote."""

from hypothesis import given
from hypothesis import strategies as st

from os_prefilter.common.quoting import quote


@given(st.text() | st.integers() | st.floats() | st.binary() | st.none() | st.lists(st.text()))
def test_any_value_is_shown_as_one_short_printable_ascii_line(value: object) -> None:
    text = quote(value)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) <= 83


def test_untrusted_value_is_quoted_escaped_or_described_by_its_kind() -> None:
    assert [quote(each) for each in ("a\nb", "\x1b[31m", [1], None)] == [r"'a\nb'", r"'\x1b[31m'", "a list", "None"]
    assert quote(10**5000) == "a huge number"
