"""Decisions, pure: a :class:`~airflow_kftrain.scheduling.model.Snapshot` goes in, a ``Plan`` comes out.

Start reading at :mod:`airflow_kftrain.scheduling.planner`; its cycle reads as numbered steps.
"""
