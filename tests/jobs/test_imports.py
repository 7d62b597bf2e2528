from __future__ import annotations

import subprocess
import sys


def test_the_jobs_model_loads_nothing_heavy():
    """It is imported wherever a DAG file is parsed."""
    code = (
        "import sys, pkgutil, importlib, airflow_kftrain.jobs as jobs\n"
        "for module in pkgutil.walk_packages(jobs.__path__, 'airflow_kftrain.jobs.'):\n"
        "    if module.name != 'airflow_kftrain.jobs.yaml_text': importlib.import_module(module.name)\n"
        "print(sorted({'airflow', 'kubernetes', 'kubernetes_asyncio', 'yaml', 'numpy'} & sys.modules.keys()))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert loaded.stdout.strip() == "[]"
