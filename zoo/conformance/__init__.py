"""Properties that every model must have, checked by the test suite and by `ablate zoo --check NAME`.

`checks` has the properties, and `flops` those of FLOPs; `combinations` the models they are tried on, `counting` counts
FLOPs independently of what is declared, and `checking` goes through all checks for one variant.
"""
