"""`completion`: a script that completes commands, options and files, made from the parser."""
from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from ..output import Output


@dataclass(frozen=True)
class Option:
    """An option: its spellings, help, the values it may have, whether it takes one, and whether
    that is a file.
    """
    flags: tuple[str, ...]
    text: str
    choices: tuple[str, ...]
    takes_value: bool
    takes_file: bool


@dataclass(frozen=True)
class Verb:
    """A command: its help, its options, and the words that its positional arguments may be."""
    name: str
    text: str
    options: tuple[Option, ...]
    words: tuple[str, ...]


def verbs_of(parser: argparse.ArgumentParser) -> Iterator[Verb]:
    """The commands of a parser with subcommands."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        texts = {a.dest: a.help or "" for a in action._choices_actions}
        for name, sub in action.choices.items():
            options, words = [], []
            for a in sub._actions:
                choices = tuple(map(str, a.choices or ()))
                if a.option_strings:
                    options.append(Option(tuple(a.option_strings), a.help or "", choices,
                                          a.nargs != 0, _is_file(a.metavar)))
                else:
                    words += choices
            yield Verb(name, texts.get(name, ""), tuple(options), tuple(words))


def _is_file(metavar: object) -> bool:
    return isinstance(metavar, str) and metavar.startswith(("FILE", "DIR"))


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of the command."""
    sub.add_argument("shell", choices=("bash", "zsh", "fish"))


def completion(options: argparse.Namespace) -> None:
    """Print the script for a shell."""
    verbs = list(verbs_of(options.parser))
    script = {"bash": bash, "zsh": zsh, "fish": fish}[options.shell](verbs)
    out = Output(options)
    if out.as_json:
        out.json({"shell": options.shell, "script": script})
    else:
        print(script, end="")


def bash(verbs: list[Verb]) -> str:
    """For bash: `eval "$(shardtrace completion bash)"`."""
    cases, values = [], []
    for v in verbs:
        flags = " ".join(f for o in v.options for f in o.flags)
        cases.append(f'    {v.name}) flags="{flags}"; words="{" ".join(v.words)}" ;;')
        for o in v.options:
            if o.takes_value:
                names = "|".join(f"{v.name}:{f}" for f in o.flags)
                done = (f'COMPREPLY=($(compgen -W "{" ".join(o.choices)}" -- "$cur"))'
                        if o.choices else 'COMPREPLY=($(compgen -f -- "$cur"))' if o.takes_file
                        else ":")
                values.append(f"    {names}) {done}; return ;;")
    names = " ".join(v.name for v in verbs)
    return "\n".join([
        "_shardtrace() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local verb="${COMP_WORDS[1]}" flags="" words=""',
        "  COMPREPLY=()",
        "  if [ \"$COMP_CWORD\" -le 1 ]; then",
        f'    COMPREPLY=($(compgen -W "{names} --help" -- "$cur")); return',
        "  fi",
        '  case "$verb:$prev" in', *values, "  esac",
        '  case "$verb" in', *cases, "  esac",
        '  if [[ "$cur" == -* ]]; then',
        '    COMPREPLY=($(compgen -W "$flags" -- "$cur"))',
        "  else",
        '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        '    if [ -z "$words" ]; then',
        "      local file",
        "      while IFS= read -r file; do",
        '        if [ -d "$file" ]; then COMPREPLY+=("$file/");',
        '        elif [[ "$file" == *.py || "$file" == *.st || "$file" == *.toml ]]; then '
        'COMPREPLY+=("$file"); fi',
        '      done < <(compgen -f -- "$cur")',
        "      compopt -o nospace 2>/dev/null",
        "    fi",
        "  fi",
        "}",
        "complete -F _shardtrace shardtrace", ""])


def zsh(verbs: list[Verb]) -> str:
    """For zsh: `shardtrace completion zsh > "${fpath[1]}/_shardtrace"`."""
    lines = ["#compdef shardtrace", "_shardtrace() {", "  local -a verbs", "  verbs=("]
    lines += [f"    {_quoted(v.name + ':' + v.text)}" for v in verbs]
    lines += ["  )", "  if (( CURRENT == 2 )); then", "    _describe 'command' verbs; return",
              "  fi", "  local verb=$words[2]", "  case $verb in"]
    for v in verbs:
        lines.append(f"    {v.name})")
        lines.append("      _arguments -s \\")
        for o in v.options:
            for flag in o.flags:
                text = o.text.replace("[", "(").replace("]", ")").replace(":", "\\:")
                value = ""
                if o.takes_value:
                    value = f":value:({' '.join(o.choices)})" if o.choices else (
                        ":value:_files" if o.takes_file else ":value: ")
                lines.append(f"        {_quoted(f'{flag}[{text}]{value}')} \\")
        files = f"({' '.join(v.words)})" if v.words else '_files -g "*.(py|st|toml)(-.)"'
        lines.append("        '*:target:" + files + "' ;;")
    return "\n".join([*lines, "  esac", "}", "if [ \"$funcstack[1]\" = _shardtrace ]; then",
                      "  _shardtrace \"$@\"", "else", "  compdef _shardtrace shardtrace", "fi", ""])


def fish(verbs: list[Verb]) -> str:
    """For fish: `shardtrace completion fish | source`."""
    lines = ["complete -c shardtrace -f"]
    for v in verbs:
        lines.append(f"complete -c shardtrace -n __fish_use_subcommand -a {v.name} "
                     f"-d {_quoted(v.text)}")
        seen = f"-n '__fish_seen_subcommand_from {v.name}'"
        for o in v.options:
            flags = " ".join(f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}"
                             for f in o.flags)
            value = ""
            if o.takes_value:
                value = f" -x -a {_quoted(' '.join(o.choices))}" if o.choices else (
                    " -r -F" if o.takes_file else " -x")
            lines.append(f"complete -c shardtrace {seen} {flags} -d {_quoted(o.text)}{value}")
        lines.append(f"complete -c shardtrace {seen} -a {_quoted(' '.join(v.words))}" if v.words
                     else f"complete -c shardtrace {seen} -F")
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
