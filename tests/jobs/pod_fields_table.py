"""Makes ``airflow_kftrain/jobs/pod_fields.json`` anew: ``python -m tests.jobs.pod_fields_table``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import kubernetes
from kubernetes.client import models

TABLE = Path(__file__).parents[2] / "airflow_kftrain" / "jobs" / "pod_fields.json"
_ITEM = re.compile(r"list\[(\w+)\]")


def pod_fields() -> dict[str, dict[str, str]]:
    """Model to field to nested model, from the field tables of the installed ``kubernetes`` client."""
    found: dict[str, dict[str, str]] = {}
    waiting = ["V1PodTemplateSpec"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        model = getattr(models, name)
        found[name] = {
            model.attribute_map[attribute]: nested(kind) for attribute, kind in model.openapi_types.items()
        }
        waiting.extend(kind for kind in found[name].values() if kind)
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


def nested(kind: str) -> str:
    """The model that a field of this type holds, itself or as list items; empty when none."""
    item = _ITEM.fullmatch(kind)
    name = item[1] if item else kind
    return name if hasattr(getattr(models, name, None), "openapi_types") else ""


def main() -> None:
    source = f"openapi_types of kubernetes {kubernetes.__version__} (Python client), Apache-2.0"
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in pod_fields().items())
    TABLE.write_text(f'{{"source": {json.dumps(source)},\n"models": {{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
