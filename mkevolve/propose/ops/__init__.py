"""Rule tables of the template proposer, one module per op family."""
