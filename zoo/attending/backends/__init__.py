"""Backends of softmax attention beside torch's own kernel (`zoo.attending.fused`) and the reference
(`zoo.attending.plain`), one file each: see `zoo.attending.visible.Backend`."""
