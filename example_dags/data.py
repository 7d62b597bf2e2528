"""The data of the examples: sets that ship with scikit-learn.

``breast_cancer`` has 569 rows of 30 features and two classes, ``digits`` 1,797 images of 8 x 8 pixels.

On the local cluster replicas are processes of this machine, so a folder is all the storage they need. On a real
cluster the same tasks would read and write an object store or a shared volume.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def folder(*parts: str) -> Path:
    """A folder of the examples: below ``$KFTRAIN_EXAMPLE_DATA``, else below Airflow's home."""
    root = (
        os.environ.get("KFTRAIN_EXAMPLE_DATA")
        or Path(os.environ.get("AIRFLOW_HOME", "~/airflow")) / "kftrain"
    )
    return Path(root).expanduser().joinpath(*(part.replace(":", "-").replace("+", "-") for part in parts))


def write_shards(target: Path, shards: int, *, name: str = "breast_cancer", seed: int = 7) -> int:
    """Write ``shards`` disjoint parts of three quarters of the rows, and ``holdout.npz`` with the rest.

    :return: rows in all shards
    """
    import numpy as np
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = x[order], y[order]
    rows = len(y) * 3 // 4
    target.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        np.savez(target / f"shard-{shard}.npz", x=x[:rows][shard::shards], y=y[:rows][shard::shards])
    np.savez(target / "holdout.npz", x=x[rows:], y=y[rows:])
    return rows


def score(model: Path, data: Path) -> dict[str, float]:
    """AUC, log loss and accuracy of a saved model on the holdout rows."""
    import numpy as np
    import xgboost
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

    booster = xgboost.Booster(model_file=str(model))
    with np.load(data / "holdout.npz") as rows:
        x, y = rows["x"], rows["y"]
    predicted: Any = booster.predict(xgboost.DMatrix(x))
    return {
        "auc": round(float(roc_auc_score(y, predicted)), 6),
        "logloss": round(float(log_loss(y, predicted)), 6),
        "accuracy": round(float(accuracy_score(y, predicted > 0.5)), 6),
    }
