"""A program: serves the WSGI application that its arguments name, on a loopback port."""

import sys
from importlib import import_module

import waitress

if __name__ == "__main__":
    program, module, port = sys.argv
    # Nova would read them as its own.
    sys.argv = [program]
    application = import_module(module).application
    waitress.serve(application, host="127.0.0.1", port=int(port), threads=4)
