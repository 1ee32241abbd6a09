"""How a captured graph is cut: first cut, legality, mutations, canonical form and ids."""
