"""The command line: the controller, the embedded cluster, and the commands for people."""
