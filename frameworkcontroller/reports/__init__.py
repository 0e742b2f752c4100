"""The receiving side of progress: Pods report to it, and it writes their reports into the attempt's ConfigMap."""
