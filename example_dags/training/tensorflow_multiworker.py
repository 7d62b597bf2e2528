"""Train with TensorFlow's MultiWorkerMirroredStrategy: every worker of a TFJob holds the same weights.

``TF_CONFIG``, which the job sets, names all workers; gradients are summed over them in a ring after each batch. The
first worker (or the Chief) saves the weights. A custom loop, because ``Model.fit`` of Keras 3 does not run under this
strategy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from reporting import report


def main() -> None:
    arguments = _arguments()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
    )
    leads = task["type"] == "chief" or (task["type"] == "worker" and task["index"] == 0)
    rank = strategy.cluster_resolver.task_id
    with np.load(arguments.data / f"shard-{rank}.npz") as rows:
        x, y = (rows["x"] / 16).astype("float32"), rows["y"].astype("int64")
    with strategy.scope():
        tf.random.set_seed(7)
        weights = [tf.Variable(tf.random.normal((64, 10), stddev=0.1)), tf.Variable(tf.zeros(10))]
    for epoch in range(arguments.epochs):
        loss = strategy.run(
            _step, args=(weights, tf.constant(x), tf.constant(y), strategy.num_replicas_in_sync)
        )
        if leads and (epoch + 1) % 10 == 0:
            metrics = {"accuracy": _accuracy(weights, arguments.data), "loss": round(float(loss), 6)}
            report(progressPercentage=int(100 * (epoch + 1) / arguments.epochs), metrics=metrics)
    values = [variable.numpy() for variable in weights]
    digest = hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()
    print(f"{task['type']} {task['index']}: model {digest[:16]}", flush=True)
    if leads:
        arguments.model.parent.mkdir(parents=True, exist_ok=True)
        np.savez(arguments.model, kernel=values[0], bias=values[1])
        report(progressPercentage=100, model=str(arguments.model))


@tf.function
def _step(weights: Any, x: Any, y: Any, replicas: int) -> Any:
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x @ weights[0] + weights[1])
        loss = tf.reduce_mean(losses) / tf.cast(replicas, tf.float32)
    gradients = tape.gradient(loss, weights)
    gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
    for variable, gradient in zip(weights, gradients, strict=True):
        variable.assign_sub(0.5 * gradient)
    return loss


def _accuracy(weights: Any, data: Path) -> float:
    with np.load(data / "holdout.npz") as rows:
        scores = (rows["x"] / 16).astype("float32") @ weights[0].numpy() + weights[1].numpy()
        return round(float((scores.argmax(1) == rows["y"]).mean()), 6)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with shard-<rank>.npz and holdout.npz"
    )
    parser.add_argument(
        "--model", type=Path, required=True, help="where the first worker writes the weights (.npz)"
    )
    parser.add_argument("--epochs", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
