"""YAML or JSON text as Kubernetes means it: one document, dates are text, no name twice."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import yaml

from airflow_kftrain.exceptions import InvalidInput


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader without dates (JSON has none), which refuses a name that stands twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own class attribute)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} stands here twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def load_yaml(text: str, *, field: str = "manifest") -> Any:
    """What one YAML document holds; JSON is read by JSON's own rules, which YAML 1.1 does not share in all.

    :raises InvalidInput: it cannot be read, or is not one document
    """
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, field))
        except InvalidInput:
            raise
        except json.JSONDecodeError:
            pass  # YAML's own braces
        except (ValueError, RecursionError) as error:
            raise InvalidInput(field, text, f"it cannot be read: {error}") from None
    try:
        documents = list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(field, text, f"it is no valid YAML: {error}") from None
    if len(documents) != 1:
        raise InvalidInput(field, text, f"it holds {len(documents)} YAML documents; give one")
    return documents[0]


def _once(pairs: list[tuple[str, Any]], field: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(field, twice, "the name stands twice in one mapping; give it once")
    return found
