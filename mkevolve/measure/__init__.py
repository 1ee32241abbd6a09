"""Times: chip descriptions, roofline, cost model."""
