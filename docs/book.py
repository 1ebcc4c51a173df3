#!/usr/bin/env python3
"""Pages from outside of docs/ in the book of `mdbook build docs`: a preprocessor of mdBook.

A page such as ../SECURITY.md becomes out/SECURITY.md, and ../README.md the first one. Links between pages follow; a link to what is
no page becomes its words. The picture of README is in docs/. A chapter without a page has the help of every command, as
the emu of `cargo build` tells it, or the one that the variable EMU names.
"""

import json
import os
import posixpath
import re
import subprocess
import sys

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
DEFINITION = re.compile(r"^\[([^\]]+)\]: *(\S+) *$", re.MULTILINE)


BUILT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "target", "debug", "emu")


def commands(emu, path=()):
    """The help of a command and of those below it."""
    text = subprocess.run([emu, *path, "--help"], check=True, capture_output=True, text=True).stdout
    name = " ".join(["emu", *path])
    yield f"## {name}\n\n```text\n{text}```\n"
    below = re.search(r"^Commands:\n((?: .*\n)+)", text, re.MULTILINE)
    for command in re.findall(r"^  (\w\S*)", below[1], re.MULTILINE) if below else []:
        if command != "help":
            yield from commands(emu, (*path, command))


def reference(title):
    emu = os.environ.get("EMU", BUILT)
    try:
        return "\n".join([f"# {title}\n", *commands(emu)])
    except OSError as error:
        sys.exit(f"book.py: {error}: `cargo build` makes it, or EMU names another")


def placed(page):
    """Where a page of the book is, of a path that begins at docs/."""
    if page == "../README.md":
        return "index.md"
    return posixpath.join("out", page.lstrip("./")) if page.startswith("../") else page


def chapters(items):
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def of_pages(text, here, pages):
    """The text of a page with links as they are in the book."""
    folder = posixpath.dirname(here)

    def target(link):
        path, mark, rest = link.partition("#")
        if not path or ":" in path:
            return link
        page = posixpath.normpath(posixpath.join(folder, path))
        if page not in pages:
            return None
        return posixpath.relpath(placed(page), posixpath.dirname(placed(here)) or ".") + mark + rest

    def inline(match):
        words, link = match.groups()
        return words if target(link) is None else f"[{words}]({target(link)})"

    defined = dict(DEFINITION.findall(text))
    for name, link in defined.items():
        if target(link) is None:
            text = re.sub(rf"\[([^\[\]]+)\]\[{re.escape(name)}\]", r"\1", text)
    text = DEFINITION.sub(lambda match: f"[{match[1]}]: {target(match[2])}" if target(match[2]) else "", text)
    return LINK.sub(inline, text)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    items = book.get("items", book.get("sections"))
    pages = {chapter["source_path"] for chapter in chapters(items) if chapter["source_path"]}
    for chapter in chapters(items):
        here = chapter["source_path"]
        if here:
            chapter["content"] = of_pages(chapter["content"], here, pages).replace("](docs/", "](")
            chapter["path"] = placed(here)
        else:
            chapter["content"] = reference(chapter["name"])
            chapter["path"] = "commands.md"
    json.dump(book, sys.stdout)


main()
