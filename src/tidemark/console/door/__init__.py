"""The HTTP door: publish and subscribe over HTTP, Server-Sent Events and WebSockets (docs/http.md)."""
