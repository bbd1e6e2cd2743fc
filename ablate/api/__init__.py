"""The contents of `import ablate`: functions with typed arguments that return objects, and errors that are one message.

The command line only parses options, calls these functions and prints.
"""
