"""The pages: read-only web pages of live Frameworks, and of past ones from the archive."""
