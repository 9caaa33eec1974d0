"""How a guest shares a GPU with others: Nova has no property for it, so a
flavor says it in Acme's own namespace.
"""

from os_prefilter.vocabulary.model import Row, nothing, terms

GPU_SHARING = Row(
    "gpu_sharing",
    terms("CUSTOM_ACME_GPU_SHARING", "partitions time-slices")
    | {"none": nothing("the guest has a GPU to itself")},
    extra_spec="acme:gpu_sharing",
)
