"""What is evaluated of a trained model."""
