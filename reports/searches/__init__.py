"""The findings of a search: its best settings, which settings matter, and what fresh seeds say of both."""
