"""``lint``: checks Frameworks in files, without a cluster, for errors and likely mistakes."""
