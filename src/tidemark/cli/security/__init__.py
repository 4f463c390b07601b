"""Commands about security: access documents, certificates and contexts."""
