"""A picture of the attempts of a Framework and its Tasks over time."""
