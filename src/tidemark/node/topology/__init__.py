"""The topology of an overlay: its file, its checks, the plan from one to another, and who goes by which."""
