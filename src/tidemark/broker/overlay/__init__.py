"""The overlay as one broker sees it: neighbours, the layout of brokers and links, routes."""
