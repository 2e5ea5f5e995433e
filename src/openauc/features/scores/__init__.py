"""Open-set scores of a sample from its features and logits."""
