"""Short forms of plans."""

from frameworkcontroller.machine.kernel.model import Plan


def actions(made: Plan) -> list[str]:
    """The plan's actions in short."""
    return [f"{type(action).__name__} {action.target.name}" for action in made.actions]
