"""From a plan to tokens: batch builder, sampler, executors."""
