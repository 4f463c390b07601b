"""The experiments of DSN'02: links and brokers fail, and what exactly-once delivery costs."""
