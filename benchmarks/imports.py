"""What importing an operator adds to ``import airflow.sdk``: seconds of CPU, the least of several fresh interpreters.

Aim: at most 0.15 s. Run: ``python benchmarks/imports.py``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

AIM = 0.15
ROUNDS = 5
OURS = "airflow_kftrain.operators.xgboost"
THEIRS = "airflow.providers.cncf.kubernetes.operators.pod"

PROGRAM = """
import json, sys, time
import airflow.sdk
from airflow.sdk import DAG, BaseOperator
cpu, wall = time.process_time(), time.perf_counter()
__import__(sys.argv[1])
print(json.dumps([time.process_time() - cpu, time.perf_counter() - wall]))
"""


def measure(module: str, rounds: int = ROUNDS) -> tuple[float, float]:
    """CPU seconds (least) and wall seconds (median) that importing ``module`` takes after ``airflow.sdk``."""
    runs = [
        json.loads(
            subprocess.run([sys.executable, "-c", PROGRAM, module], check=True, capture_output=True).stdout
        )
        for _ in range(rounds)
    ]
    return min(cpu for cpu, _ in runs), statistics.median(wall for _, wall in runs)


def main() -> int:
    """Measure and print. :return: the process's exit code"""
    ours, wall = measure(OURS)
    theirs, _ = measure(THEIRS, rounds=2)
    print(f"import {OURS}: {ours:.3f} s of CPU (wall {wall:.3f} s); aim {AIM} s")
    print(f"import {THEIRS}: {theirs:.3f} s of CPU")
    return 0 if ours <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
