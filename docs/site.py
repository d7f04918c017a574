"""The documentation site: `./dev docs` builds it in build/docs, with the API reference below api/.

The pages are the Markdown files of the repository, at the same places, so that links between them
work on the site as in the repository. A broken link is an error, and so is a page that
`docs/mkdocs.yml` does not place. build/docs/index.html needs no server and no network.
"""

from __future__ import annotations

import re
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "bench/*.md")
"""The files that are pages of the site."""
PICTURES = "docs/images/**/*.png"
"""Those of the pages."""
API_PAGE = """# API reference

The public names of each module, from their docstrings:

{modules}
"""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)#]+)(#[^)]*)?\)")


def on_site(text: str, home: Path) -> str:
    """Turn a page's links to files that are no pages into text. `home`: the folder of the page.

    Links to what does not exist stay, for mkdocs to report.
    """

    def kept(link: re.Match[str]) -> str:
        target = home / link[2]
        return link[1] if target.exists() and target.suffix != ".md" else link[0]

    return _LINK.sub(kept, text)


def stage(folder: Path, modules: tuple[str, ...]) -> None:
    """Copy all pages and pictures, and write the page that leads to the API reference."""
    for page in sorted({page for pattern in PAGES for page in ROOT.glob(pattern)}):
        copy = folder / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(on_site(page.read_text(), page.parent))
    for picture in ROOT.glob(PICTURES):
        copy = folder / picture.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, copy)
    links = [f"- [`{name}`](../api/{name.replace('.', '/')}.html)" for name in modules]
    (folder / "docs/API.md").write_text(API_PAGE.format(modules="\n".join(links)))


def write(folder: Path) -> None:
    """Build the site. Raises an exception of mkdocs, or ValueError for the reference."""
    reference = runpy.run_path(str(ROOT / "docs/reference.py"))
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as staged:
        stage(Path(staged), reference["PUBLIC"])
        reference["write"](Path(staged) / "api")  # mkdocs checks that these pages exist
        build(
            load_config(
                str(ROOT / "docs/mkdocs.yml"), docs_dir=staged, site_dir=str(folder), strict=True
            )
        )


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs")
    write(target)
    print(target / "index.html")
