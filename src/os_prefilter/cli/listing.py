"""What every command of ours is: a cliff listing that starts quickly."""

from cliff.lister import Lister


class Listing(Lister):
    """A listing in the formats table, json, yaml, csv and value."""

    def get_epilog(self) -> str:
        """Return nothing: cliff would read the metadata of all installed packages to name the one it comes from."""
        return ""
