"""What the hot paths of a broker cost in counts that do not depend on the load of the machine."""
