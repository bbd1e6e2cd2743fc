"""lm-eval tasks that ship with the project: a YAML file each, made from a study's own held-out documents.

Their `custom_dataset` functions receive `documents` (list of held-out texts) and `seed` besides the file's own
`dataset_kwargs`; a task file of the user's may do the same.
"""
