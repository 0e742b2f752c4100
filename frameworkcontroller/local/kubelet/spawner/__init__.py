"""The process that has every container's process below it, apart from the controller.

    kubelet ──commands──▶ spawner ──fork──▶ monitor, one per container ──fork, exec──▶ the container's processes
       ◀───────────────── events ────────────────┘

It is started by path, with the standard library alone and before anything of a Pod is known, and stays small and
single-threaded: a fork of it is cheap and safe, which neither is true of the controller. Commands and events are JSON,
one object a line, over two pipes.

Nothing outlives its parent. The end of the command pipe, which the kernel closes however the kubelet ends, is the
spawner's order to kill everything; a monitor gets a signal when the spawner ends; and a monitor is the reaper of all
that is started below it, so nothing leaves a container by daemonising, and all of it is killed when its first process
ends.

Modules here import nothing outside the standard library and this package, and keep to its fast parts: no pathlib.
"""
