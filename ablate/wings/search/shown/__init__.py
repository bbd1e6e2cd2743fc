"""A search's findings and its page: best settings, the settings that matter, and scores of both on fresh seeds."""
