"""Requirements and losses as text for people, in the table and on the page."""

from os_prefilter.common.quoting import escape_line
from os_prefilter.operators.audit.audit import Cause, Loss


def told_loss(loss: Loss) -> str:
    """Return what a requirement costs."""
    return f"{told_cause(loss.cause)}: {loss.lacking} ({loss.lacking_only} by it alone)"


def told_cause(cause: Cause) -> str:
    """Return a requirement, with who asked for it."""
    sign = "!" if cause.rule == "forbidden" else ""
    on = f" on {escape_line(cause.on)}" if cause.on else ""
    return f"{sign}{cause.trait}{on} by {cause.by}"
