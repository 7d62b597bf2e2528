import builtins

import pytest

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.simulate import draw
from airflow_kftrain.simulate.engine import simulate
from airflow_kftrain.simulate.policies import policy
from airflow_kftrain.simulate.world import FREE, Cluster
from tests.simulate.builders import job, workload


@pytest.fixture
def run():
    two = workload(job("first", 0, 100, 8), job("second", 0, 100, 8))
    return simulate(two, Cluster.count(8), policy("strict-fifo"), FREE)


def test_the_text_shows_use_queue_and_each_gang(run):
    title, used, waiting, first, second, axis = draw.text(run, width=10, gangs=2).splitlines()
    assert title == "StrictFIFO, 8 GPUs"
    assert used.split()[-3] == "██████████"
    assert "█████      at most 8" in waiting
    assert "█████      waited 0.0 h" in first
    assert "·····█████ waited 0.0 h" in second
    assert axis.strip().startswith("0 h")


def test_gangs_can_be_left_out(run):
    assert len(draw.text(run, width=10, gangs=0).splitlines()) == 4


def test_without_matplotlib_a_picture_is_refused_with_what_to_install(run, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidInput, match=r"airflow-kftrain\[plots\]"):
        draw.picture({"one": run}, tmp_path / "x.png")


def test_a_picture_is_written_and_an_unknown_type_refused(run, tmp_path):
    pytest.importorskip("matplotlib")
    draw.picture({"one": run, "two": run}, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match="png"):
        draw.picture({"one": run}, tmp_path / "x.nothing")
