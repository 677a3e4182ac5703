"""Run trials as jobs of a SLURM cluster."""
