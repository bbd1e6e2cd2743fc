"""Properties that every model must have, whatever it is made of: checks that the test suite runs, and `ablate zoo
--check NAME`.

`checks` has the properties, `combinations` the models they are tried on, `counting` counts FLOPs independently of what
is declared, and `checking` goes through all checks for one variant.
"""
