"""The build: what it says when it cannot, and that what is built stays built."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.controlplane import build as building
from tests.controlplane.build import BuildError, build, missing_programs, module_of, program_path
from tests.support.requires import require_program


@pytest.fixture
def nothing_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a PATH with the given folder alone."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(programs))
    return programs


def test_without_go_it_says_what_to_install(nothing_built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BuildError, match="go is not on PATH: install Go"):
        build(["kwok"])
    assert "kwok" in missing_programs()


def test_the_command_ends_with_the_error_s_text_alone(
    nothing_built: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["build", "etcd"])
    assert building.main() == 1
    assert capsys.readouterr().err.startswith("error: go is not on PATH")


def test_an_older_go_is_named_with_the_version_that_is_needed(nothing_built: Path) -> None:
    (nothing_built / "go").write_text("#!/bin/sh\necho go1.21.3\n")
    (nothing_built / "go").chmod(0o755)
    with pytest.raises(BuildError, match=r"Go 1\.21\.3 is too old for kwok: 1\.26\.0 or newer"):
        build(["kwok"])


def test_an_unknown_program_is_an_error_that_lists_the_known_ones(nothing_built: Path) -> None:
    with pytest.raises(
        BuildError, match="no program 'kubelet' is built here; known are: etcd, kube-apiserver"
    ):
        build(["kubelet"])


def test_what_is_there_is_not_built_again(nothing_built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = program_path("kwok")
    program.parent.mkdir(parents=True)
    program.touch()
    build(["kwok"])  # without Go on PATH: anything to do would be an error
    assert "building" not in capsys.readouterr().out


def test_other_sources_lead_to_another_folder(
    nothing_built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of("kwok")
    before = module.cache
    copied = tmp_path / "go" / "kwok"
    copied.mkdir(parents=True)
    for name in ("go.mod", "go.sum"):
        (copied / name).write_bytes((module.source / name).read_bytes())
    monkeypatch.setattr(building, "GO_MODULES", tmp_path / "go")
    assert module.cache == before
    with (copied / "go.sum").open("a") as sums:
        sums.write("\n")
    assert module.cache != before


def test_a_failed_build_leaves_nothing_under_the_program_s_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    require_program("go", "it builds the control plane")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "GO_MODULES", tmp_path / "go")
    broken = tmp_path / "go" / "kwok"
    broken.mkdir(parents=True)
    (broken / "go.mod").write_text("module broken\n\ngo 1.20\n")
    (broken / "go.sum").touch()
    with pytest.raises(BuildError, match=r"`go build` failed in .*kwok with exit code 1"):
        build(["kwok"])
    assert not program_path("kwok").exists()
