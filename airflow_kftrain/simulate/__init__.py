"""What a scheduling policy would have done with a workload, under a virtual clock.

Reading order: :mod:`workload` (what is run), :mod:`world` (capacity and gangs), :mod:`engine` (the loop),
:mod:`baselines` and :mod:`planned` (policies), :mod:`bounds` and :mod:`metrics` (what a result is worth).
"""
