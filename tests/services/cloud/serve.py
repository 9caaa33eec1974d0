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

"""A program: serves the WSGI application that its arguments name, on a loopback port."""

import sys
from importlib import import_module

import waitress

_OLDER = {"nova.wsgi.osapi_compute": "nova.api.openstack.compute.wsgi", "glance.wsgi.api": "glance.common.wsgi_app"}

if __name__ == "__main__":
    program, module, port = sys.argv
    # Nova would read them as its own.
    sys.argv = [program]
    try:
        application = import_module(module).application
    except ModuleNotFoundError:
        # Of a release before 2025.1.
        older = import_module(_OLDER[module])
        application = (older.init_app if module.startswith("glance") else older.init_application)()
    waitress.serve(application, host="127.0.0.1", port=int(port), threads=4)
