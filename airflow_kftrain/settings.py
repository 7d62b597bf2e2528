"""The ``[kftrain]`` section of the configuration."""
