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

"""Whole scheduling runs with Nova's own services in one process; that process is for these tests alone.

Nova's functional base classes choose between native threads and eventlet when they are imported, for the whole process,
and replace parts of Nova and of ``unittest.mock``. The plain ``pytest`` of the project does not collect this folder.
"""
