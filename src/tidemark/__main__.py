"""`python -m tidemark` is the command `tidemark`."""

from __future__ import annotations

from tidemark.cli import main

if __name__ == "__main__":
    main()
