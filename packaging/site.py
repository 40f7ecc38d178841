#!/usr/bin/env python3
"""Builds the pages as a web site: make site. Usage: site.py OUTPUT

The pages keep their paths, so that their links work unchanged: the README is the first page, and
the files outside of docs/ that pages link to are copied. llms.txt is the navigation.
"""

import json
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)((?:#[^)]*)?)\)")


def stage(work: Path) -> None:
    """Copies the README, the pages, and what they link to, also indirectly."""
    shutil.copytree(ROOT / "docs", work / "docs")
    shutil.copy(ROOT / "llms.txt", work)
    waiting = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()

        def follow(match: re.Match) -> str:
            target = match[1]
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
            if "://" in target or not (ROOT / path).exists():
                return match[0]  # Zensical reports a link that leads nowhere
            if path not in seen:
                seen.add(path)
                copy(path)
            if path == "README.md":
                target = target.removesuffix("README.md") + "index.md"
            elif (ROOT / path).is_dir():
                target += "/index.md"
            return f"]({target}{match[2]})"

        def copy(path: str) -> None:
            source, copied = ROOT / path, work / path
            if source.is_dir():
                files = sorted(f.name for f in source.iterdir() if f.is_file() and not f.name.endswith(".go"))
                links = "".join(f"- [{name}]({name})\n" for name in files)
                copied.mkdir(parents=True, exist_ok=True)
                (copied / "index.md").write_text(f"# Files in {path}\n\n{links}")
                for name in files:
                    if f"{path}/{name}" not in seen:
                        seen.add(f"{path}/{name}")
                        copy(f"{path}/{name}")
            elif source.suffix == ".md":
                waiting.append(path)
            else:
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copied)

        text = LINK.sub(follow, (ROOT / page).read_text())
        copied = work / ("index.md" if page == "README.md" else page)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(text)


def navigation() -> list:
    """Returns the groups of llms.txt with their pages."""
    groups = re.split(r"(?m)^## ", (ROOT / "llms.txt").read_text())[1:]
    return [{group.split("\n", 1)[0]: re.findall(r"(?m)^- \[.*?\]\((.*?)\): ", group)} for group in groups]


def main() -> None:
    output = Path(sys.argv[1]).resolve()
    work = output.with_name(output.name + "-source")
    for old in (work, output):
        shutil.rmtree(old, ignore_errors=True)
    stage(work / "pages")
    # JSON is YAML. A font of the theme would be loaded from another host. The anchors are GitHub's.
    (work / "mkdocs.yml").write_text(json.dumps({
        "site_name": "bringupd", "docs_dir": "pages", "site_dir": "site",
        "use_directory_urls": False, "nav": [{"Home": "index.md"}, *navigation()],
        "theme": {"font": False, "features": ["navigation.indexes", "navigation.top", "search.highlight"]},
        "plugins": ["search"],
        "markdown_extensions": ["tables", "attr_list", {"toc": {"permalink": True, "slugify": "SLUGS"}}],
    }).replace('"SLUGS"', '!!python/object/apply:pymdownx.slugs.slugify {"kwds": {"case": "lower"}}'))
    zensical = Path(sys.executable).with_name("zensical")
    code = subprocess.run([zensical, "build", "--clean", "--strict", "-f", work / "mkdocs.yml"]).returncode
    if code:
        sys.exit(f"cannot build the site: zensical build --strict exited with {code}; it lists the links above")
    shutil.move(work / "site", output)
    for page in (work / "pages").rglob("*.md"):  # llms.txt links to the text of the pages
        shutil.copy(page, output / page.relative_to(work / "pages"))
    print(f"the site is in {output}; to read it: python3 -m http.server --directory={output}")


main()
