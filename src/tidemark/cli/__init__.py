"""cli."""


def main() -> None:
    """Placeholder until the commands are wired."""
