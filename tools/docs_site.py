"""A hook of mkdocs: the pages at the top of the repository belong to the site as well.

GitHub shows them where they are; links between them and docs/ are rewritten here, so that both work.
"""

import pathlib
import re

from mkdocs.structure.files import File, Files

TOP = ("SECURITY.md", "CHANGELOG.md")


def on_files(files: Files, config) -> Files:
    """Adds the pages."""
    root = pathlib.Path(config.config_file_path).parent
    for name in TOP:
        files.append(File.generated(config, name, content=(root / name).read_text()))
    return files


def on_page_markdown(markdown: str, page, **_) -> str:
    """Links as they are inside of the site."""
    if page.file.src_uri in TOP:
        return re.sub(r"\]\(docs/", "](", markdown)
    names = "|".join(map(re.escape, TOP))
    return re.sub(rf"\]\(((?:\.\./)*)\.\./({names})", r"](\1\2", markdown)
