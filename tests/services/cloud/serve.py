# SPDX-License-Identifier: Apache-2.0

"""A program: serves the WSGI application that its arguments name, on a
loopback port.
"""

import sys
from importlib import import_module

import waitress

_OLDER = {
    "nova.wsgi.osapi_compute": "nova.api.openstack.compute.wsgi",
    "glance.wsgi.api": "glance.common.wsgi_app",
}

if __name__ == "__main__":
    program, module, port = sys.argv
    # Nova would read them as its own.
    sys.argv = [program]
    try:
        application = import_module(module).application
    except ModuleNotFoundError:
        # Of a release before 2025.1.
        older = import_module(_OLDER[module])
        application = (
            older.init_app
            if module.startswith("glance")
            else older.init_application
        )()
    waitress.serve(application, host="127.0.0.1", port=int(port), threads=4)
