"""The process that fuzzes one document, for :mod:`tests.exhaustive.fuzz.test_fuzz`: NAME, FOLDER, SECONDS.

Atheris knows which lines of os_prefilter an input reaches, and keeps what reaches new ones in the corpus. An input that
breaks a law, takes too long or too much memory ends the process, and is left beside the corpus.
"""

import sys
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

_LONGEST_SECONDS = 10
_MOST_MIB = 1024
_LARGEST_INPUT = 64 * 1024


def fuzz(name: str, folder: Path, seconds: int) -> None:
    """Fuzz a document in this process, and end it."""
    atheris: Any = import_module("atheris")
    # Not at the top: atheris instruments what is imported here.
    with atheris.instrument_imports(include=["os_prefilter"]):
        laws, mutations = import_module("tests.documents.laws"), import_module("tests.documents.mutations")
        documents = import_module("tests.documents.table").DOCUMENTS
    (document,) = (each for each in documents if each.name == name)
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(document.seeds):
        (corpus / f"seed-{number}").write_bytes(data)
    words = folder / f"{name}.words.txt"
    lines = ("".join(f"\\x{byte:02x}" for byte in token[:60]) for token in mutations.TOKENS)
    words.write_text("".join(f'"{line}"\n' for line in lines))

    def change(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        is_ours = random.random() < 0.5
        return (mutations.mutated(data, random, document.keys) if is_ours else bytes(atheris.Mutate(data, most)))[:most]

    def check_input(data: bytes) -> None:
        laws.check(document, data)

    options = {
        "max_total_time": seconds,
        "timeout": _LONGEST_SECONDS,
        "rss_limit_mb": _MOST_MIB,
        "max_len": _LARGEST_INPUT,
        "dict": words,
        "artifact_prefix": f"{folder}/{name}.failed.",
        "print_final_stats": 1,
    }
    arguments = [sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), str(corpus)]
    atheris.Setup(arguments, check_input, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
