"""The subscribing side of a broker: sessions, the constream, catchup streams, acknowledgements, handover."""
