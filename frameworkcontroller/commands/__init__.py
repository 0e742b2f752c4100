"""Commands for people: how Frameworks get on, and what to do about it, on any cluster that a kubeconfig reaches."""
