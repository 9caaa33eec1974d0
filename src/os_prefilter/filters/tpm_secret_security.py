"""Who may read the secret of an emulated TPM."""

from os_prefilter.asking import ask, chosen
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import NOTHING, Note, Requirements, require
from os_prefilter.vocabulary import BY_NAME

_DEFAULT = "user"


def tpm_secret_security(request: Request, *, options: Options) -> Requirements:
    """Require the flavor's hw:tpm_secret_security, by default "user", where an emulated TPM is asked for."""
    notes: list[Note] = []
    tpm = chosen(request, BY_NAME["tpm_version"], options, notes)
    if tpm is None:
        return Requirements(notes=tuple(notes)) if notes else NOTHING
    row = BY_NAME["tpm_secret_security"]
    if request.extra_spec("hw:tpm_secret_security") is None:
        return require(str(row.values[_DEFAULT].trait), f"{tpm[1]} with the default secret security, {_DEFAULT}")
    return ask(request, [row], options)
