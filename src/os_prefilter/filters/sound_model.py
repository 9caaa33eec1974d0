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

"""The sound device alone, for clouds that do not filter by all image metadata."""

from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


# The filter image_metadata includes it.
@Declaration(by_default=False)
def sound_model(request: Request, *, options: Options) -> Requirements:
    """Require the sound model of hw_sound_model or hw:sound_model; Nova's filter knows virtio only."""
    return require_rows(request, rows_of(request, "sound_model"), options)
