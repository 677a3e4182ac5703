"""Run trials on the workers of a Dask cluster, without a shared disk."""
