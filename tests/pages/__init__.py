"""Pages that a reader follows: their commands and programs are run as they are printed."""
