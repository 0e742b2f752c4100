"""``history``: the commands about the history of Frameworks and its archive."""
