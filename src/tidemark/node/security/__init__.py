"""Security of a broker process: transport, proofs of who is there, limits on failures, and the audit log."""
