"""Changes of differences, losses and the order of arms along a ladder of sizes or lengths."""
