#include "config/command_line/complete.h"

namespace titan::config {
namespace {

// The script does not escape file names: `compopt -o filenames` adds the '/' of folders and quotes blanks. Outside of a
// completion, as in tests, compopt fails.
constexpr const char* kBash = R"sh(# Completion of titan-train: eval "$(titan-train --completion bash)"
_titan_train() {
  local current=${COMP_WORDS[COMP_CWORD]} kind
  { read -r kind; mapfile -t COMPREPLY; } < <("${COMP_WORDS[0]}" --complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
  [[ $kind == nothing ]] && compopt +o default 2>/dev/null
  [[ $kind == files ]] || return 0
  compopt -o filenames 2>/dev/null
  current=${current#[\"\']}
  mapfile -t COMPREPLY < <(compgen -f -- "${current//\\/}")
}
complete -o default -F _titan_train titan-train
)sh";

constexpr const char* kZsh = R"sh(#compdef titan-train
# Completion of titan-train: eval "$(titan-train --completion zsh)"
_titan_train() {
  local -a answer candidates
  answer=("${(@f)$("${words[1]}" --complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  [[ $PREFIX == -*=* ]] && compset -P '*='
  [[ ${answer[1]} == files ]] && _files
  candidates=("${(@)${(@)answer[2,-1]//:/\\:}/$'\t'/:}")
  [[ ${answer[1]} == words ]] && _describe -V titan-train candidates
}
compdef _titan_train titan-train
)sh";

constexpr const char* kFish = R"sh(# Completion of titan-train: titan-train --completion fish | source
function __titan_train
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l answer ($words[1] --complete fish $words[2..-1] "$current" 2>/dev/null)
    test "$answer[1]" = files; and __fish_complete_path "$current"
    test "$answer[1]" = words; and printf '%s\n' $answer[2..-1]
end
complete -c titan-train -f -a '(__titan_train)'
)sh";

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "zsh") return kZsh;
  return shell == "fish" ? kFish : kBash;
}

}  // namespace titan::config
