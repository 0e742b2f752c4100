"""A small queue for Kueue's Workloads: admission, priorities and preemption in one ClusterQueue at a time."""
