"""Properties that every model must have, checked by the test suite and by `ablate zoo --check NAME`.

`checks` has the properties, `flops` those of FLOPs, `combinations` the models under test. `counting` counts FLOPs
independently of declared costs, and `checking` runs all checks on one variant.
"""
