"""What README, CONTRIBUTING and docs/ say exists: files, names of the package, commands and their flags.

tests/test_page_blocks.py runs their programs.
"""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("processes_on_jax")]

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "saved_models/README.md"]
PAGES += [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("keras_attn", "recipes", "tests", "docs", "saved_models", ".ci", ".github")
MADE = re.compile(r"saved_models/(?!README)|[A-Z*<]")  # by a command, or with a placeholder


def text_of(page):
    return (ROOT / page).read_text("utf-8")


def code_spans(page):
    """Inline code, outside fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S))


def commands(page):
    """The lines of fenced blocks without a language, comments cut off, split where one command follows another."""
    for block in re.findall(r"^```\n(.*?)^```", text_of(page), flags=re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            yield from (part.split() for part in re.split(r"&&|\|", line.split(" #")[0]) if part.strip())


@pytest.mark.parametrize("page", PAGES)
def test_files_exist(page):
    spans = [span.split()[0] for span in code_spans(page)]
    paths = [span for span in spans if span.split("/")[0] in FOLDERS and "/" in span and not MADE.search(span)]
    paths = [(ROOT, path) for path in paths]
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(page))
    paths += [((ROOT / page).parent, link) for link in links]
    assert not [path for base, path in paths if not (base / path).exists()]


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_package_exist(page):
    text = text_of(page).split("### Changed")[0]  # what the changelog says was renamed has gone
    names = {n for n in re.findall(r"\b(?:keras_attn|recipes|tests)(?:\.\w+)+", text) if not n.endswith(".md")}
    absent = []
    for name in sorted(names):
        if name == "recipes.train.RECIPE" or re.search(r"\.(py|json|html)$", name):
            continue
        parts = name.split(".")
        try:
            found = importlib.import_module(parts[0])
            for n, part in enumerate(parts[1:], 2):
                if not hasattr(found, part):
                    importlib.import_module(".".join(parts[:n]))
                found = getattr(found, part)
        except (AttributeError, ModuleNotFoundError) as error:
            if isinstance(error, ModuleNotFoundError) and error.name.split(".")[0] not in (
                "keras_attn",
                "recipes",
                "tests",
            ):
                continue  # an extra that is not installed here
            absent.append(name)
    assert not absent


def test_the_first_page_has_the_guides_in_the_groups_and_under_the_names_of_the_site():
    yaml = pytest.importorskip("yaml")
    (groups,) = (part["Guides"] for part in yaml.safe_load(text_of("mkdocs.yml"))["nav"] if "Guides" in part)
    on_site = {name: dict(item.popitem() for item in items) for group in groups for name, items in group.items()}
    sections = re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text_of("docs/index.md"), flags=re.M | re.S)
    on_page = {name: dict(re.findall(r"\[([^]]+)\]\(([^)]+)\)", section)) for name, section in sections}
    on_page["Serve"]["TensorFlow Serving"] = "serving.md"  # on the site; ../saved_models/README.md in the clone
    assert list(on_page.items())[: len(on_site)] == list(on_site.items())
    titles = {path: title for pages in on_site.values() for title, path in pages.items()}
    readme = dict(re.findall(r"^\| [^|]* \| \[([^]]+)\]\(docs/([\w/-]+\.md)\)", text_of("README.md"), flags=re.M))
    assert all(titles.get(path, title) == title for title, path in readme.items())


def test_the_workflow_runs_the_command_of_the_readme():
    (command,) = re.findall(r'^pip install -e "\.\[test\]" && (pytest .*)$', text_of("README.md"), flags=re.M)
    assert f"- run: {command}\n" in text_of(".github/workflows/ci.yml")


def modules_and_flags():
    """What `python -m MODULE` and `keras-attn COMMAND` are run with, over all pages."""
    used = {}
    for page in PAGES:
        for words in commands(page):
            while words and "=" in words[0]:  # KERAS_BACKEND=jax
                words.pop(0)
            if words[:2] == ["python", "-m"] and words[2].split(".")[0] in ("recipes", "tests"):
                key = (words[2],)
            elif words[:1] == ["keras-attn"] and len(words) > 1:
                key = ("keras_attn", words[1])
            else:
                continue
            used.setdefault(key, set()).update(word for word in words if re.match(r"--[a-z]", word))
    return sorted(used.items())


@pytest.mark.parametrize(("module", "flags"), [pytest.param(m, f, id=" ".join(m)) for m, f in modules_and_flags()])
def test_commands_know_their_flags(module, flags):
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-m", *module, "--help"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not {flag for flag in flags if not re.search(rf"(?<![\w-]){flag}\b", done.stdout)}
