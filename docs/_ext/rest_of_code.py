"""List the modules that the walk through the code does not name, from the folder."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from from_code import FromCode
from sphinx.application import Sphinx

import os_prefilter

SOURCE = Path(os_prefilter.__file__).parent
_ROLE = re.compile(r":\w+:`(?:os_prefilter\.)?([\w.]+)`")
NAMED = re.compile(r"``([\w/]+\.py)``")


def modules() -> dict[str, list[str]]:
    """Return the modules by folder, as paths below the package."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py"), key=lambda path: (path.parent, path.name)):
        name = path.relative_to(SOURCE)
        found.setdefault(name.parent.as_posix(), []).append(name.as_posix())
    return found


def rest(page: str) -> Iterator[str]:
    """Yield the modules that ``page`` does not name as reStructuredText, with the first line of each docstring."""
    named = set(NAMED.findall(page))
    for folder, names in modules().items():
        left = [name for name in names if name not in named]
        if left:
            yield f"**{'os_prefilter' if folder == '.' else folder}**"
            yield ""
        for name in left:
            docstring = ast.get_docstring(ast.parse((SOURCE / name).read_text(encoding="utf-8"))) or ""
            yield f"``{name}``"
            # What it refers to may have no page.
            yield "    " + _ROLE.sub(r"``\1``", docstring.splitlines()[0])
            yield ""


class RestOfCode(FromCode):
    """``.. rest-of-code::``, at the end of the page that names the others."""

    def make(self) -> Iterator[str]:
        """Yield lines of reStructuredText."""
        return rest(Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("rest-of-code", RestOfCode)
    return {"parallel_read_safe": True}
