"""Training: callbacks, schedules, scores and reports of a run."""
