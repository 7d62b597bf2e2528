"""What Airflow sees of the provider, and what is beside the operators: settings, links, the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest

from airflow_kftrain import __version__
from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.get_provider_info import get_provider_info
from airflow_kftrain.links import JobLink, fill
from airflow_kftrain.settings import Settings, read_settings


def option(monkeypatch, name, value):
    monkeypatch.setenv(f"AIRFLOW__KFTRAIN__{name.upper()}", value)


def test_the_metadata_fits_airflows_schema():
    from importlib.resources import files

    from jsonschema import validate

    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text())
    validate(get_provider_info(), schema)


def test_everything_the_metadata_names_is_there():
    info = get_provider_info()
    modules = [
        m
        for key in ("operators", "hooks", "triggers")
        for entry in info[key]
        for m in entry["python-modules"]
    ]
    for module in modules:
        import_module(module)
    classes = [*info["extra-links"], *info["cli"], *(c["hook-class-name"] for c in info["connection-types"])]
    for path in classes:
        module, name = path.rsplit(".", 1)
        assert hasattr(import_module(module), name)


def test_every_option_has_its_default_in_the_settings(monkeypatch):
    for name in get_provider_info()["config"]["kftrain"]["options"]:
        monkeypatch.delenv(f"AIRFLOW__KFTRAIN__{name.upper()}", raising=False)
    assert read_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("instance", "no spaces here", "letters, digits"),
        ("instance", "x" * 64, "63"),
        ("mode", "fast", "single-job"),
        ("start_limit", "soon", "15m"),
        ("progress_interval", "-3", "positive"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(monkeypatch, name, value, remedy):
    option(monkeypatch, name, value)
    with pytest.raises(InvalidInput, match=rf"\[kftrain\] {name}: .*{remedy}"):
        read_settings()


def test_a_start_limit_may_be_none(monkeypatch):
    option(monkeypatch, "start_limit", "none")
    assert read_settings().start_limit is None


def test_a_link_is_filled_and_quoted():
    values = {"plural": "xgboostjobs", "namespace": "a b", "name": "n/1"}
    assert (
        fill("job_url", "https://x/{plural}/{namespace}/{name}", values)
        == "https://x/xgboostjobs/a%20b/n%2F1"
    )


@pytest.mark.parametrize("template", ["https://x/{nome}", "https://x/{", "{0}"])
def test_a_link_template_that_cannot_be_filled_is_named(template):
    with pytest.raises(InvalidInput, match=r"\[kftrain\] job_url"):
        fill("job_url", template, {})


def test_a_link_is_hidden_where_no_url_is_set(monkeypatch):
    class Operator:
        def __init__(self):
            self.link_values = {"name": "n"}

    assert JobLink().get_link(Operator(), ti_key=None) == ""
    option(monkeypatch, "job_url", "https://x/{name}")
    assert JobLink().get_link(Operator(), ti_key=None) == "https://x/n"


def test_kftrain_starts_without_airflow():
    program = (
        "import sys\n"
        "from airflow_kftrain.cli.app import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('airflow' in sys.modules or 'kubernetes_asyncio' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "janitor" in done.stdout


def test_kftrain_tells_its_version(capsys):
    from airflow_kftrain.cli.app import main

    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kftrain {__version__}\n"


def test_the_janitor_says_where_it_can_run():
    program = "from airflow_kftrain.cli.app import main; main(['janitor', '--once'])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "airflow kftrain janitor" in done.stderr
    assert "Traceback" not in done.stderr
