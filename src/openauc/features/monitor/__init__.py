"""Monitor: do new samples still look like those that the model was calibrated on?"""
