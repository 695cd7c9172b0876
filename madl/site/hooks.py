"""What `mkdocs build` leaves out of the site: files of the theme that no reader ever loads.

Source maps, the search stemmers of other languages, and the second copy of the search index: the
offline plugin writes it as a script, which pages load wherever they are opened from.
"""

from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority

UNUSED = (
    "assets/**/*.map",
    "assets/javascripts/lunr/**/*",
    "search/search_index.json",
)


@event_priority(-200)  # after the offline plugin, which makes its script of the index
def on_post_build(config: Any, **_: Any) -> None:
    """Called by MkDocs when all files are written."""
    site = Path(config["site_dir"])
    for pattern in UNUSED:
        for path in site.glob(pattern):
            if path.is_file():
                path.unlink()
