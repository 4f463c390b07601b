"""Commands that watch brokers and durable subscriptions."""
