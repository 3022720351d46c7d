"""Files, names of the package, commands and their flags that README, CONTRIBUTING and docs/ mention exist.

tests/unit/test_page_blocks.py runs their programs.
"""

import importlib
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "saved_models/README.md"]
PAGES += [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("keras_attn", "recipes", "tests", "docs", "saved_models", ".ci", ".github")
BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", flags=re.M | re.S)
MADE = re.compile(r"saved_models/(?!README)|[A-Z*<]")  # by a command, or with a placeholder


def text_of(page):
    return (ROOT / page).read_text("utf-8")


def blocks(page):
    """(language, content, the `text` directly after it or None) of each block."""
    text = text_of(page)
    found = list(BLOCK.finditer(text))
    for block, after in itertools.zip_longest(found, found[1:]):
        follows = after is not None and after[2] == "text" and not text[block.end() : after.start()].strip()
        yield block[2], re.sub(rf"^{block[1]}", "", block[3], flags=re.M), after[3] if follows else None


def shell_lines():
    """(page, line, output) of each shell command, continued lines joined and comments cut off."""
    for page in PAGES:
        for language, content, output in blocks(page):
            if language == "":
                lines = [line.split(" #")[0].rstrip() for line in content.replace("\\\n", " ").splitlines()]
                lines = [line for line in lines if line and not line.startswith("#")]
                yield from ((page, line, output if line is lines[-1] else None) for line in lines)


def code_spans(page):
    """Inline code, outside fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S))


@pytest.mark.parametrize("page", PAGES)
def test_files_exist(page):
    spans = [span.split()[0] for span in code_spans(page)]
    paths = [span for span in spans if span.split("/")[0] in FOLDERS and "/" in span and not MADE.search(span)]
    paths = [(ROOT, path) for path in paths]
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(page))
    paths += [((ROOT / page).parent, link) for link in links]
    assert not [path for base, path in paths if not (base / path).exists()]


def is_missing(name):
    """True for a dotted name that is neither a module nor an attribute; not for one that needs an absent extra."""
    parts = name.split(".")
    try:
        found = importlib.import_module(parts[0])
        for n, part in enumerate(parts[1:], 2):
            if not hasattr(found, part):
                importlib.import_module(".".join(parts[:n]))
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        return error.name.split(".")[0] in FOLDERS
    except AttributeError:
        return True
    return False


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_package_exist(page):
    text = text_of(page).split("### Changed")[0]  # the changelog quotes old names there
    names = set(re.findall(r"\b(?:keras_attn|recipes|tests)(?:\.\w+)+", text)) - {"recipes.train.RECIPE"}
    assert not [name for name in names if not re.search(r"\.(js|py|json|html|md)$", name) and is_missing(name)]


def test_the_workflow_runs_the_command_of_the_readme():
    (command,) = re.findall(r'^pip install -e "\.\[test\]" && (pytest .*)$', text_of("README.md"), flags=re.M)
    assert f"- run: {command}\n" in text_of(".github/workflows/ci.yml")


def modules_and_flags():
    """The flags of each `python -m MODULE` and `keras-attn COMMAND`, over all pages."""
    used = {}
    for _, line, _ in shell_lines():
        for part in re.split(r"&&|\|", line):
            words = part.split()
            while words and "=" in words[0]:  # KERAS_BACKEND=jax
                words.pop(0)
            if words[:2] == ["python", "-m"] and words[2].split(".")[0] in ("recipes", "tests"):
                key = (words[2],)
            elif words[:1] == ["keras-attn"] and len(words) > 1:
                key = ("keras_attn.cli.main", words[1])
            else:
                continue
            used.setdefault(key, set()).update(word for word in words if re.match(r"--[a-z]", word))
    return sorted(used.items())


@pytest.mark.parametrize(("module", "flags"), [pytest.param(m, f, id=" ".join(m)) for m, f in modules_and_flags()])
def test_commands_know_their_flags(module, flags, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [*module, "--help"])
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module[0]).main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert not {flag for flag in flags if not re.search(rf"(?<![\w-]){flag}\b", shown)}
