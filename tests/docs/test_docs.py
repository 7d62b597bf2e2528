"""What the documentation shows is run: Python blocks are executed, links lead somewhere, commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)")


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (
            f"{page.relative_to(REPOSITORY)}:{page.read_text()[: match.start()].count(chr(10)) + 1}",
            match["code"],
        )
        for page in PAGES
        for match in BLOCK.finditer(page.read_text())
        if match["language"] == language
    ]


@pytest.mark.parametrize(
    ("place", "code"), blocks("python"), ids=lambda value: value if ":" in value[:60] else ""
)
def test_a_python_example_runs(place: str, code: str) -> None:
    exec(compile(code, place, "exec"), {"__name__": "documented"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    broken = [
        m["target"] for m in LINK.finditer(page.read_text()) if not (page.parent / m["target"]).exists()
    ]
    assert broken == []


def commands() -> list[tuple[str, list[str]]]:
    """Commands of shell blocks that begin with make or kftrain."""
    found = []
    for place, code in blocks("sh"):
        for line in code.splitlines():
            words = line.split("#")[0].split()
            if words and words[0].rsplit("/")[-1] in ("make", "kftrain"):
                found.append((place, words))
    return found


def test_make_targets_and_kftrain_commands_in_the_documentation_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    assert commands()
    for place, words in commands():
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, (place, words)


@pytest.mark.parametrize(
    "words",
    sorted(
        {
            tuple(w for w in words[1:] if not w.startswith("-"))[:2]
            for _, words in commands()
            if words[0].endswith("kftrain")
        }
    ),
    ids=" ".join,
)
def test_a_kftrain_command_in_the_documentation_has_help(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from airflow_kftrain.cli.app import main; main()", *words, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: kftrain" in done.stdout
