"""Checks Frameworks in files, without a cluster: what would be refused, or not do what was meant."""
