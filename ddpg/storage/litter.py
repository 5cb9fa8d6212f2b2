"""Files that a file manager leaves in every folder it shows: nobody's, and in nobody's way."""

_NAMES = {".DS_Store", "Thumbs.db", "desktop.ini"}


def is_litter(name: str) -> bool:
    """Tell whether a file manager of macOS or Windows gives such a name to files of its own."""
    return name in _NAMES or name.startswith("._")
