"""Access: who is who, and who may do and see what. Pure: it decides, and carries out nothing."""
