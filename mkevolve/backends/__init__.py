"""Children that compile and run candidate code; seam.py alone touches private Triton names."""
