"""Models from elsewhere, and for elsewhere: checkpoints imported as runs, and runs exported to transformers."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("import", "export"),
    needs=("ablate/wings/evaluate", "ablate/wings/named", "ablate/wings/serve", "ablate/wings/starts"),
    face={"importing": ("Imported", "import_model"), "exporting": ("export",)},
    adds={
        "ablate.evaluate": "import_request",
        "ablate.pages": "imports_shown",
        "ablate.running.study_plan.exports": "exporting",
    },
)
