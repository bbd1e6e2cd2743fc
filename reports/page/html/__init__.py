"""Pages: one HTML file each, which works offline."""
