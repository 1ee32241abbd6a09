"""The nouns that cross a stage boundary: frozen dataclasses that import the standard library only."""
