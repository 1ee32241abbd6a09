"""The SQLite ledger; only the drivers write it."""
