"""The engine that alone accepts: static, compile, numeric, integrity. Imports no proposer and no store."""
