"""Apache Airflow provider for gang-scheduled distributed training on Kubernetes."""

__version__ = "0.1.0"
