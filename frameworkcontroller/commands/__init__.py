"""Commands for users: they show and change Frameworks on any cluster that a kubeconfig names."""
