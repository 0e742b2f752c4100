"""``timeline``: the attempts of a Framework and its Tasks over time, as a picture."""
