"""What the cloud is made of, as plain-text tables: its ways, hosts, images and flavors."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from mixed.hosts import KINDS
from mixed.requests import IMAGES, SIZES, Boot, Image
from mixed.ways import WAYS

_WIDTH = 100


def described(boots: Sequence[Boot], hosts: Sequence[str]) -> str:
    """Return all of it.

    :param boots: the requests
    :param hosts: the kind of each host
    """
    lines = ["Ways", *(_line(f"{way.name:14}", way.what) for way in WAYS), ""]
    lines += ["Hosts, and the traits of each: by Nova's driver, and with this library's agent"]
    for kind in KINDS:
        traits = f"{len(kind.nova_traits):4} {len(kind.our_traits):4}"
        lines.append(_line(f"{kind.name:14}{hosts.count(kind.name):5}  {traits}  ", kind.what))
    lines += ["", "Images, and the requests for each"]
    for image in IMAGES:
        number = sum(boot.image.name == image.name for boot in boots)
        lines.append(_line(f"{image.name:16}{number:4}  ", ", ".join(_requested(image))))
    lines += ["", "Flavors of virtual machines, and the requests for each"]
    for size in SIZES:
        number = sum(boot.size.name == size.name and boot.image.metal is None for boot in boots)
        amounts = f"{size.vcpus} VCPU, {size.memory_mb // 1024} GiB of memory, {size.disk_gb} GB of disk"
        lines.append(_line(f"{size.name:16}{number:4}  ", amounts))
    return "\n".join(lines)


def _requested(image: Image) -> Iterator[str]:
    yield image.disk_format
    yield from (f"{name}={value}" for name, value in image.properties.items())
    if image.metal is not None:
        yield "bare metal"
        yield from (f"{name}={value} (flavor)" for name, value in image.metal.items())


def _line(start: str, text: str) -> str:
    indent = " " * len(start)
    return "\n".join(wrap(text, _WIDTH, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False))
