"""The web server of pages and archive, and who may see them: on loopback by its token, elsewhere by the API server."""
