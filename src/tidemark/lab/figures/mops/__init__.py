"""The experiments of MOPS: mobile subscribers, served by queues and by persistent notifications."""
