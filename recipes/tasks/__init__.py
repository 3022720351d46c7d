"""Recipes of other tasks than translation, a script each: `python -m recipes.tasks.forecasting`."""
