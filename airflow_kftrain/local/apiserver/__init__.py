"""A Kubernetes API server on loopback, small and complete enough for kubectl and the official clients.

Whoever has its token can run commands as the user. Modules, from the bottom: ``journal`` and ``store`` (objects, their
order, durability), ``kinds``, ``schema``, ``rules`` (what is served and what is valid), ``writes``, ``deletes``,
``patch``, ``apply``, ``scale`` (changes), ``reads``, ``watches``, ``tables`` (answers), ``collector``, ``quota`` (what
follows from changes), ``http`` and ``server``.
"""

from airflow_kftrain.local.apiserver.logs import LogSource
from airflow_kftrain.local.apiserver.server import ApiServer

__all__ = ["ApiServer", "LogSource"]
