"""Monitor: whether the samples a model meets still look like those it was fitted on."""
