"""Where progress is shown."""

from __future__ import annotations

from rich.console import Console


class SteadyConsole(Console):
    """Never hides the cursor: a process that is killed could not show it again."""

    def show_cursor(self, show: bool = True) -> bool:
        return False
