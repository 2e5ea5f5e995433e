"""Training: recipes, learning-rate schedules, augmentation. Importing this package needs no torch."""
