"""Training: fitting with its callbacks and schedules, scores and reports of a run."""
