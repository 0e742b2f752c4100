"""The process that forks every container, separate from the controller.

    kubelet ──commands──▶ spawner ──fork──▶ monitor, one per container ──fork, exec──▶ the container's processes
       ◀───────────────── events ────────────────┘

It is started by path, uses only the standard library, and stays small and single-threaded, so that its forks are cheap
and safe, unlike the controller's. Commands and events are JSON, one object per line, over two pipes.

Nothing outlives its parent. The kernel closes the command pipe when the kubelet ends in any way, and the spawner then
kills everything. A monitor gets a signal when the spawner ends. A monitor is the reaper of all its descendants, so
nothing escapes a container by daemonizing, and everything is killed when its first process ends.

Modules here import only the standard library and this package, and only its fast parts: no pathlib.
"""
