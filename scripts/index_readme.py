"""The README as a package index shows it. A hook of hatchling: what it returns is in the metadata of sdist and wheel.

A package index does not have our files. Where pyproject.toml has `[project.urls] Source`, relative links lead there, to
the tag of the release; without one they become plain text, and images are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r'(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^\s()]+)(?P<title>\s+"[^"]*")?\)')
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#")


class IndexReadme(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        source = metadata.get("urls", {}).get("Source")
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = on_an_index(readme, source, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def on_an_index(readme: str, source: str | None, tag: str) -> str:
    """Markdown without relative links: they lead below `source` at `tag`, or are plain text if it is None."""

    def link(found: re.Match[str]) -> str:
        image, text, target, title = found.group("image", "text", "target", "title")
        if ELSEWHERE.match(target):
            return found[0]
        if source is None:
            return "" if image else text
        return f"{image}[{text}]({source.rstrip('/')}/{'raw' if image else 'blob'}/{tag}/{target}{title or ''})"

    parts, end = [], 0
    for fence in FENCE.finditer(readme):
        parts += [LINK.sub(link, readme[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(link, readme[end:])])
