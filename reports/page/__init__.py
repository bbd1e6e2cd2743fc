"""How a study is shown: sections, figures, wording and HTML."""
