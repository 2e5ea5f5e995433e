"""OpenSetClassifier: from embeddings to a class or "unknown"."""
