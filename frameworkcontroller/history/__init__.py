"""The archive of the history: records of attempts in a database, and queries over them."""
