"""Settings: frozen typed specs, their variants in files, edits by path, error messages and identities."""
