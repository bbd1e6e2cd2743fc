"""Parts of softmax attention: visibility of keys, scoring, and the backends, one file each."""
