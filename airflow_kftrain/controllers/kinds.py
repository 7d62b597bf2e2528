"""The kinds that controllers know: one line each."""

from __future__ import annotations

from airflow_kftrain.controllers.pytorchjob import PyTorchJobReconciler
from airflow_kftrain.controllers.reconciler import Reconciler
from airflow_kftrain.controllers.tfjob import TFJobReconciler
from airflow_kftrain.controllers.xgboostjob import XGBoostJobReconciler

RECONCILERS: dict[str, Reconciler] = {
    reconciler.framework.kind: reconciler
    for reconciler in (TFJobReconciler(), PyTorchJobReconciler(), XGBoostJobReconciler())
}
