"""Commands that publish and subscribe, with what they read and write."""
