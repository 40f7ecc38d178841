"""A world of JAX: computes the sum of the ranks' numbers on every rank.

srun --ntasks-per-node=1 bringupd --ranks-per-node=gpu -- python examples/jax_allreduce.py
"""

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize()  # uses Slurm's variables, which bringupd sets for every rank

numbers = multihost_utils.process_allgather(jnp.array(jax.process_index()))
print(f"rank {jax.process_index()} of {jax.process_count()}: the sum of all is {numbers.sum()}", flush=True)
