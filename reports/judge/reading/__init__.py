"""A study's runs as frames."""
