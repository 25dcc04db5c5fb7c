#include <filesystem>
#include <string_view>

#include "config/command_line/complete.h"

namespace titan::config {
namespace {

// Each script asks the program that printed it: @PROGRAM@ is its path, quoted for the shell.
//
// The script does not escape file names: `compopt -o filenames` adds the '/' of folders and quotes blanks. Outside of a
// completion, as in tests, compopt fails.
constexpr const char* kBash = R"sh(# Completion of titan-train: eval "$(titan-train --completion bash)"
_titan_train() {
  local current=${COMP_WORDS[COMP_CWORD]} kind
  { read -r kind; mapfile -t COMPREPLY; } < <(@PROGRAM@ --complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
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
  answer=("${(@f)$(@PROGRAM@ --complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  [[ $PREFIX == -*=* ]] && compset -P '*='
  [[ ${answer[1]} == files ]] && _files
  candidates=("${(@)${(@)answer[2,-1]//:/\\:}/$'\t'/:}")
  [[ ${answer[1]} == words ]] && _describe -V titan-train candidates
}
compdef _titan_train titan-train
)sh";

// Files are fish's own, which expands ~ and variables and knows quotes, but for the part after "--flag=".
constexpr const char* kFish = R"sh(# Completion of titan-train: titan-train --completion fish | source
function __titan_train
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    @PROGRAM@ --complete fish $words[2..-1] "$current" 2>/dev/null
end
function __titan_train_candidates
    set -l answer (__titan_train)
    set -l flag (string match -r -- '^-[^=]*=' (commandline -ct))
    test "$answer[1]" = words; and printf '%s\n' $answer[2..-1]
    test "$answer[1]" = files -a -n "$flag"; and printf "$flag%s\n" (__fish_complete_path (string replace -- "$flag" '' (commandline -ct)))
end
complete -c titan-train -f -a '(__titan_train_candidates)'
complete -c titan-train -n 'test (__titan_train)[1] = files' -F
)sh";

// Quotes for '...', in which fish escapes with a backslash and the others by leaving the quotes.
std::string quoted(const std::string& text, bool is_fish) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || (is_fish && c == '\\')) {
      out += is_fish ? std::string("\\") + c : "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace

std::string completion_script(const std::string& shell) {
  constexpr std::string_view kProgram = "@PROGRAM@";
  std::string script = shell == "zsh" ? kZsh : shell == "fish" ? kFish : kBash;
  const std::string program = quoted(std::filesystem::read_symlink("/proc/self/exe").string(), shell == "fish");
  for (auto at = script.find(kProgram); at != std::string::npos; at = script.find(kProgram, at + program.size()))
    script.replace(at, kProgram.size(), program);
  return script;
}

}  // namespace titan::config
