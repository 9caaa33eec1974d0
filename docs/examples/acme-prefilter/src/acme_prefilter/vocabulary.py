"""What a guest's watchdog does when the guest hangs: Nova knows the property, and no driver reports it."""

from os_prefilter.vocabulary.model import Row, nothing, terms

WATCHDOG = Row(
    "watchdog",
    terms("CUSTOM_COMPUTE_WATCHDOG", "none pause poweroff reset") | {"disabled": nothing("there is no watchdog")},
    image_property="hw_watchdog_action",
    extra_spec="hw:watchdog_action",
    image_overrides=True,
)
