"""`completion`: a shell's function that knows every command and option, and asks for the names of patches."""

from __future__ import annotations

from typing import Any

from splatbatch.cli.app import app

BASH = r"""# splatbatch: complete commands, options and patches. In ~/.bashrc: source <(splatbatch completion bash)
_splatbatch() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command="" config="" words="" patches=""
  local i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      -c | --config) config=${COMP_WORDS[++i]} ;;
      -*) ;;
      *) command="${command:+$command }${COMP_WORDS[i]}"; [[ $command == config ]] || break ;;
    esac
  done
  COMPREPLY=()
  case $before in @FILES@) COMPREPLY=($(compgen -f -- "$current")); return ;; esac
  case $command in
@CASES@
    *) return ;;
  esac
  if [[ -n $patches && $current != -* ]]; then
    words=$(splatbatch names ${config:+--config "$config"} 2>/dev/null)
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ ${#COMPREPLY[@]} -gt 0 || $current == -* || -z $command ]] || COMPREPLY=($(compgen -f -- "$current"))
}
complete -o filenames -F _splatbatch splatbatch
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit  # in ~/.zshrc: source <(splatbatch completion zsh)\n"


def script(shell: str) -> str:
    """Return what a shell sources; zsh takes bash's function by its own bridge."""
    from typer.main import get_command

    root: Any = get_command(app)
    tops = {name: one for name, one in root.commands.items() if not one.hidden}
    nested = {f"config {name}": one for name, one in tops["config"].commands.items()}
    cases = [f'    "") words="{" ".join(sorted(tops))} --help --version" ;;']
    cases += [f'    "config") words="{" ".join(tops["config"].commands)} --help" ;;']
    cases += [_case(name, one) for name, one in sorted({**tops, **nested}.items()) if name != "config"]
    paths = {option for one in {**tops, **nested}.values() for option in _options(one, paths_only=True)}
    text = BASH.replace("@CASES@", "\n".join(cases)).replace("@FILES@", " | ".join(sorted(paths)))
    return (ZSH if shell == "zsh" else "") + text


def _case(name: str, command: Any) -> str:
    names_patches = any("PATCH" in (one.metavar or "") for one in command.params if one.param_type_name == "argument")
    words = " ".join([*_options(command), "--help"])
    return f'    "{name}") words="{words}"{" patches=1" if names_patches else ""} ;;'


def _options(command: Any, *, paths_only: bool = False) -> list[str]:
    """Return the options of a command; `paths_only`: those that take a file or folder."""
    found = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    found = [one for one in found if not paths_only or one.metavar in ("FILE", "DIR", "FOLDER", "PATH")]
    return [word for one in found for word in one.opts if word.startswith("-")]
