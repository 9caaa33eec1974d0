"""Coverage-guided fuzzing of the targets, one after the other.

``python -m tests.exhaustive.fuzz.run [--seconds N] [TARGET ...]``

Atheris knows which lines of os_prefilter an input reaches, and keeps what reaches new ones. What fails ends its target:
the input is left beside the corpus and named at the end. Each target has a process of its own, with a limit of seconds
and of memory for one input.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from tests.exhaustive.fuzz.mutations import TOKENS, mutated

_LONGEST_SECONDS = 10
_MOST_MIB = 1024
_LARGEST_INPUT = 64 * 1024
_DONE = re.compile(r"^Done (\d+) runs in (\d+) second", re.MULTILINE)
_COVERED = re.compile(r"cov: (\d+)")


def main() -> int:
    """Run the targets that the command line names, all without; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="for each target (default: 300)")
    parser.add_argument("--folder", type=Path, help="where corpora are kept from run to run; default: a temporary one")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    arguments = parser.parse_args()
    if not arguments.here and (unknown := sorted(set(arguments.targets) - set(_names()))):
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(_names())}")
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="os-prefilter-fuzz."))
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.here:
        _fuzz(arguments.targets[0], folder, arguments.seconds)
    return max(_run(name, folder, arguments.seconds) for name in arguments.targets or _names())


def _names() -> list[str]:
    # Not at the top: the process that fuzzes imports the targets instrumented.
    return list(import_module("tests.exhaustive.fuzz.targets").TARGETS)


def _run(name: str, folder: Path, seconds: int) -> int:
    """Fuzz one target in a process of its own, and print a line about it."""
    command = [
        sys.executable,
        "-m",
        "tests.exhaustive.fuzz.run",
        "--here",
        "--seconds",
        str(seconds),
        "--folder",
        str(folder),
    ]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        code = subprocess.run([*command, name], stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    text = log.read_text(encoding="utf-8", errors="replace")
    runs, took = next(((int(found[1]), int(found[2])) for found in _DONE.finditer(text)), (0, 0))
    covered = max((int(found) for found in _COVERED.findall(text)), default=0)
    inputs = ", ".join(map(str, sorted(folder.glob(f"{name}.failed.*"))))
    found = "nothing found" if code == 0 and runs else f"FAILED: see {log}; {inputs}"
    print(f"{name:20} {took:6} s {runs:10,} inputs {covered:7,} branches   {found}", flush=True)  # noqa: T201
    return int(code != 0 or not runs)


def _fuzz(name: str, folder: Path, seconds: int) -> None:
    """Fuzz one target in this process, and end it."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["os_prefilter"]):
        targets = import_module("tests.exhaustive.fuzz.targets")
        seeds = import_module("tests.exhaustive.fuzz.seeds").seeds(name)
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(data)
    words = folder / "words.txt"
    lines = ("".join(f"\\x{byte:02x}" for byte in token[:60]) for token in TOKENS)
    words.write_text("".join(f'"{line}"\n' for line in lines))

    def changed(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        return (mutated(data, random) if random.random() < 0.5 else bytes(atheris.Mutate(data, most)))[:most]

    options = {
        "max_total_time": seconds,
        "timeout": _LONGEST_SECONDS,
        "rss_limit_mb": _MOST_MIB,
        "max_len": _LARGEST_INPUT,
        "dict": words,
        "artifact_prefix": f"{folder}/{name}.failed.",
        "print_final_stats": 1,
    }
    atheris.Setup(
        [sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), str(corpus)],
        targets.TARGETS[name],
        custom_mutator=changed,
    )
    with targets.log_is_watched():
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
