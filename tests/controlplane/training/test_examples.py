"""The example DAGs train on the real API: pods made by the real operator, bound by the gang scheduler, run by us.

The tests are those of the local cluster, word for word; only the stage is another one.
"""

from __future__ import annotations

from tests.examples.test_examples import (
    test_a_sweep_keeps_the_best_of_three_gangs,
    test_pytorch_ddp_ends_with_the_same_weights_on_all_ranks,
    test_retraining_promotes_a_model_that_three_ranks_share,
    test_tensorflow_trains_with_both_strategies,
)

__all__ = [
    "test_a_sweep_keeps_the_best_of_three_gangs",
    "test_pytorch_ddp_ends_with_the_same_weights_on_all_ranks",
    "test_retraining_promotes_a_model_that_three_ranks_share",
    "test_tensorflow_trains_with_both_strategies",
]
