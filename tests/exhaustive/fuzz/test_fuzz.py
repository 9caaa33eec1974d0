"""Coverage-guided fuzzing of each document, five minutes each with ``tox -e exhaustive``, six seconds without it.

Corpora are new in each run, unless ``OS_PREFILTER_FUZZ_FOLDER`` names a folder that keeps them.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import times
from tests.documents.laws import Document
from tests.documents.table import DOCUMENTS

_ROOT = Path(__file__).parents[3]
_DONE = re.compile(r"^Done (\d+) runs in (\d+) second", re.MULTILINE)
_WRITTEN = re.compile(r"Test unit written to (.+)")
_COVERED = re.compile(r"cov: (\d+)")
_LONGEST_SHOWN = 4_000


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_no_input_breaks_the_laws_of_a_document(document: Document, tmp_path: Path) -> None:
    """Nor does one take more than 10 seconds or 1 GiB; ``-rP`` shows how many were tried."""
    assert find_spec("atheris"), "atheris is missing: pip install atheris"
    folder = Path(os.environ.get("OS_PREFILTER_FUZZ_FOLDER") or tmp_path).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.exhaustive.fuzz.fuzzer", document.name, str(folder), str(times(6))]
    log = folder / f"{document}.log"
    with log.open("wb") as output:
        code = subprocess.run(command, cwd=_ROOT, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    text = log.read_text(encoding="utf-8", errors="replace")
    runs, seconds = next(((int(found[1]), int(found[2])) for found in _DONE.finditer(text)), (0, 0))
    covered = max(map(int, _COVERED.findall(text)), default=0)
    print(f"{document}: {seconds} s, {runs:,} inputs, {covered:,} branches")  # noqa: T201
    broken = [f"{path}: {_shown(Path(path).read_bytes())}" for path in _WRITTEN.findall(text)]
    assert code == 0, "\n".join([*broken, f"The end of {log}:", text[-_LONGEST_SHOWN:]])
    assert runs, f"no input was tried; see {log}"


def _shown(data: bytes) -> str:
    return repr(data[:_LONGEST_SHOWN]) + (f" and {len(data) - _LONGEST_SHOWN:,} bytes" * (len(data) > _LONGEST_SHOWN))
