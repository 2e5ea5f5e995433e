"""Training and prediction with torch: loop, schedule, augmentation, checkpoints, features."""
