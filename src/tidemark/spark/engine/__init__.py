"""The engine: a Spark session, the Java runtime that it needs, tasks, and errors in one line.

The entry is `session.session`, or `session.quiet_session` for commands. `java.java_home` finds or makes the
Java, `plain_errors` turns our errors that come back through Spark into one line, and `tasks.run_tasks` runs a
function for each of several items on Spark or here.
"""
