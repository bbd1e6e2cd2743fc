"""What a search found: its best settings, which settings matter, and what fresh seeds say of both."""
