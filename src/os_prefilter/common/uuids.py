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

"""Checks for UUIDs: the forms that Placement accepts, and the usual one that users mean."""

import re

_LENGTH = 36
_DIGITS = re.compile(r"[0-9a-fA-F]{32}")
_PARTS = [8, 4, 4, 4, 12]


def is_uuid(value: object) -> bool:
    """Return whether Placement takes it for a UUID in ``member_of`` or ``in_tree``; hyphens may be missing."""
    return isinstance(value, str) and len(value) <= _LENGTH and bool(_DIGITS.fullmatch(value.replace("-", "")))


def is_hyphenated_uuid(text: str) -> bool:
    """Return whether it is a UUID in the usual form: digits without hyphens may be the name of a host or an image."""
    return is_uuid(text) and list(map(len, text.split("-"))) == _PARTS
