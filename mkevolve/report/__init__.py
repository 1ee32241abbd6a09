"""What a person sees: the terminal table and the JSON object."""
