"""Studies: several runs compared under one budget."""
