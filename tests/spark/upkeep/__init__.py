"""Tests of what is done to an archive that lives: erasing and verifying."""
