"""Each example DAG runs by ``dag.test()`` on a local cluster, and is judged by what came out of it."""

# ruff: noqa: ASYNC240 (nothing else runs in the loop while files are read)
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.examples.stage import Stage
from tests.support.interpreters import require_tensorflow, require_torch

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("examples")]


async def test_retraining_promotes_a_model_that_three_ranks_share(stage: Stage) -> None:
    ended = await stage.run("example_dags.retraining")
    outcome, scores = ended.values["train"], ended.values["evaluate"]
    assert scores["auc"] > 0.98
    assert set(outcome["replicas"]) == {"master-0", "worker-0", "worker-1"}
    assert {r["exit_code"] for r in outcome["replicas"].values()} == {0}
    # Ranks that hold different models stop themselves with an error; the Master says so in the log.
    assert ended.said(r"rank (0) of (3): model [0-9a-f]{16}") == [("master-0", "0", "3")]
    promoted = Path(ended.values["promote"])
    assert promoted.read_bytes() == Path(scores["model"]).read_bytes()
    assert json.loads((promoted.parent / "scores.json").read_text())["auc"] == scores["auc"]


async def test_a_sweep_keeps_the_best_of_three_gangs(stage: Stage) -> None:
    ended = await stage.run("example_dags.sweep")
    losses = {n: ended.values[f"train[{n}]"]["metrics"]["logloss"] for n in range(3)}
    assert len(set(losses.values())) == 3, "each gang was to train with settings of its own"
    best = ended.values["best"]
    assert best["metrics"]["logloss"] == min(losses.values()) < 0.3
    assert Path(best["model"]).is_file()


async def test_pytorch_ddp_ends_with_the_same_weights_on_all_ranks(stage: Stage) -> None:
    require_torch()
    ended = await stage.run("example_dags.pytorch_ddp")
    said = ended.said(r"rank (\d) of 3: model ([0-9a-f]{12})")
    assert {(replica, rank) for replica, rank, _ in said} == {
        ("master-0", "0"), ("worker-0", "1"), ("worker-1", "2"),
    }  # fmt: skip
    assert len({digest for _, _, digest in said}) == 1, said
    assert ended.values["train"]["metrics"]["accuracy"] > 0.9
    assert Path(ended.values["accept"]).is_file()


async def test_tensorflow_trains_with_both_strategies(stage: Stage) -> None:
    require_tensorflow()
    ended = await stage.run("example_dags.tensorflow_strategies")
    mirrored = ended.said(r"worker (\d): model ([0-9a-f]{16})")
    assert {(replica, index) for replica, index, _ in mirrored} == {("worker-0", "0"), ("worker-1", "1")}
    assert len({digest for _, _, digest in mirrored}) == 1, mirrored

    [(chief, steps)] = ended.said(r"steps by worker: (\[[0-9, ]+\])")
    assert chief == "chief-0"
    by_worker = json.loads(steps)
    assert len(by_worker) == 2
    assert min(by_worker) >= 10, "each worker was to apply gradients to the shared variables"
    # PS and workers never end by themselves: they were removed when the Chief was done.
    replicas = ended.values["parameter_server"]["replicas"]
    assert replicas["chief-0"]["exit_code"] == 0
    assert set(replicas) == {"chief-0", "ps-0", "worker-0", "worker-1"}

    for task in ("mirrored", "parameter_server"):
        assert ended.values[task]["metrics"]["accuracy"] > 0.85, task
        with np.load(ended.values[task]["model"]) as model:
            assert np.abs(model["bias"]).max() > 0
    accuracies = [ended.values[task]["metrics"]["accuracy"] for task in ("mirrored", "parameter_server")]
    assert ended.values["better"]["metrics"]["accuracy"] == max(accuracies)
