"""The engine: a Spark session, the Java runtime it needs, and its errors in one line."""
