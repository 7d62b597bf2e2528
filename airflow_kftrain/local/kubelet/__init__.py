"""Pods as local processes."""

from __future__ import annotations

from airflow_kftrain.local.kubelet.agent import Kubelet
from airflow_kftrain.local.kubelet.images import Image, Images
from airflow_kftrain.local.kubelet.logs import LogBook, LogOptions
from airflow_kftrain.local.kubelet.machine import BackOff

__all__ = ["BackOff", "Image", "Images", "Kubelet", "LogBook", "LogOptions"]
