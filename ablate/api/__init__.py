"""What `import ablate` offers: functions with typed arguments that return objects, and errors that are one message.

The command line is one caller of these functions among others: it parses and prints.
"""
