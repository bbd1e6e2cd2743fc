"""How differences, losses and the order of arms change along a ladder of sizes or lengths."""
