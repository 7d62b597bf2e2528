"""Train with TensorFlow's ParameterServerStrategy: a TFJob of a Chief, a PS and workers.

Variables live on the parameter server; workers compute gradients on their shard and apply them without waiting for each
other; the Chief gives out the steps and ends the job. PS and workers serve until they are removed, which is what the
job's clean-pod policy is for.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from reporting import report


def main() -> None:
    arguments = _arguments()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        )
        print(f"{resolver.task_type} {resolver.task_id} serves", flush=True)
        server.join()
        return
    _coordinate(arguments, resolver)


def _coordinate(arguments: argparse.Namespace, resolver: Any) -> None:
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        tf.random.set_seed(7)
        kernel, bias = tf.Variable(tf.random.normal((64, 10), stddev=0.1)), tf.Variable(tf.zeros(10))
        steps = tf.Variable(tf.zeros(workers))
    shards = [_read(arguments.data / f"shard-{shard}.npz") for shard in range(workers)]

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x @ kernel + bias)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip((kernel, bias), tape.gradient(loss, (kernel, bias)), strict=True):
            variable.assign_sub(0.5 * gradient)
        steps.assign_add(
            tf.one_hot(tf.distribute.coordinator.experimental_get_current_worker_index(), workers)
        )
        return loss

    holdout = _read(arguments.data / "holdout.npz")
    for epoch in range(arguments.epochs):
        for x, y in shards:
            coordinator.schedule(step, args=(tf.constant(x), tf.constant(y)))
        if (epoch + 1) % 10 == 0:
            coordinator.join()
            scores = holdout[0] @ kernel.numpy() + bias.numpy()
            metrics = {"accuracy": round(float((scores.argmax(1) == holdout[1]).mean()), 6)}
            report(progressPercentage=int(100 * (epoch + 1) / arguments.epochs), metrics=metrics)
    coordinator.join()
    print(f"steps by worker: {steps.numpy().astype(int).tolist()}", flush=True)
    arguments.model.parent.mkdir(parents=True, exist_ok=True)
    np.savez(arguments.model, kernel=kernel.numpy(), bias=bias.numpy())
    report(progressPercentage=100, model=str(arguments.model))


def _read(path: Path) -> tuple[Any, Any]:
    with np.load(path) as rows:
        return (rows["x"] / 16).astype("float32"), rows["y"].astype("int64")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with shard-<n>.npz and holdout.npz")
    parser.add_argument("--model", type=Path, required=True, help="where the Chief writes the weights (.npz)")
    parser.add_argument("--epochs", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
