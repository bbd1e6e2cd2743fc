"""Print a script that completes commands, options and studies in a shell.

bash: add eval "$(ablate completion bash)" to ~/.bashrc
zsh:  add eval "$(ablate completion zsh)" to ~/.zshrc, after compinit
fish: ablate completion fish > ~/.config/fish/completions/ablate.fish
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Sequence
from importlib import resources

from ablate.commands import COMMANDS, DONE

SCRIPTS = {
    "bash": """_ablate() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(ablate completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$2"))
}
complete -o default -F _ablate ablate""",
    "zsh": """_ablate() {
    local -a found
    found=("${(@f)$(ablate completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -a found
    _files
}
compdef _ablate ablate""",
    "fish": """function _ablate
    ablate completion words (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c ablate -a '(_ablate)'""",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=(*SCRIPTS, "words"), metavar="bash|zsh|fish")
    parser.add_argument("line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    if options.shell == "words":
        print("\n".join(_words(options.line)))
    else:
        print(SCRIPTS[options.shell])
    return DONE


def _words(line: Sequence[str]) -> Iterable[str]:
    """Completions for the last word of a line."""
    if len(line) < 2:
        return COMMANDS
    if line[0] not in COMMANDS:
        return ()
    parser = argparse.ArgumentParser(prog=line[0])
    importlib.import_module(COMMANDS[line[0]]).configure(parser)
    actions = parser._actions
    before = next((action for action in actions if line[-2] in action.option_strings and action.nargs != 0), None)
    if line[-1].startswith("-") and before is None:
        return [word for action in actions for word in action.option_strings if word.startswith("--")]
    if before is not None and before.dest == "scale":
        files = resources.files("ablate").joinpath("scales").iterdir()
        return sorted(file.name.removesuffix(".yaml") for file in files)
    if before is not None:
        return [str(choice) for choice in before.choices or ()]
    return _names(line[0], [action for action in actions if not action.option_strings])


def _names(command: str, positional: Sequence[argparse.Action]) -> Iterable[str]:
    """Names to complete: studies for a command that takes one, or else what the command's own `names` says. The shell
    completes files."""
    from ablate.study.written import shipped

    if any(action.metavar == "STUDY" for action in positional):
        return shipped()
    own = getattr(importlib.import_module(COMMANDS[command]), "names", None)
    return own() if own else ()
