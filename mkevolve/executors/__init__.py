"""Where search workers run: in this process, or on Ray."""
