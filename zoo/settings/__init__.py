"""Settings: typed, frozen, found as files, edited by path, explained where they are wrong, and told apart."""
