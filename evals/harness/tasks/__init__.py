"""lm-eval tasks that ship with the project: one YAML file each, with items built from a study's held-out documents.

Their `custom_dataset` functions receive `documents` (list of held-out texts) and `seed` besides the file's own
`dataset_kwargs`; so do those of a user's task files.
"""
