#include "config/command_line/modes.h"

#include <algorithm>

namespace titan::config {
namespace {

constexpr Mode kModes[] = {
    {"config", "a TOML file", false, "",
     "what to train and how; flags win over it, it wins over defaults; - is standard input; also -c"},
    {"dry_run", "", false, "", "say what a run would take, bytes per rank by kind first, start nothing, and exit"},
    {"world_size", "an integer, at least 1", false, "", "ranks to pretend with --dry-run or --print-config"},
    {"device", "a model or an amount of memory", false, "",
     "with --dry-run: whether a rank fits it (H100, A100-40GB, 24GiB); exit code 1 if not"},
    {"json", "", false, "", "with --dry-run: one JSON object with all figures, sizes in bytes, not a table", true},
    {"nproc", "an integer, at least 1", false, "", "ranks to start on this machine without a launcher"},
    {"oversubscribe", "", false, "", "with --nproc: also more ranks than this machine's cores and memory are good for",
     true},
    {"max_restarts", "an integer, at least 0", false, "",
     "with --nproc: how often to start the ranks again after a failure; they resume from the newest checkpoint "
     "(docs/launch.md)",
     true},
    {"min_nproc", "an integer, at least 1", false, "",
     "with --max-restarts: go on with fewer ranks, at least so many, where the machine is not good for more any longer",
     true},
    {"log_rank", "ranks", false, "",
     "whose log the terminal shows, step by step: all, or some, as in 0,4-7; rank 0's without it. Warnings of all "
     "ranks are shown, and each rank's log is in its file under job.dump_folder",
     true},
    {"overwrite", "", false, "",
     "begin anew where job.dump_folder holds a finished run or another one; what is there is written over"},
    {"no_preflight", "", false, "", "start also where free memory or disk space look too small for the run", true},
    {"print_config", "=origins or =changed", true, "origins,changed",
     "print the resolved configuration as TOML and exit; =origins: and where each value came from; =changed: only what "
     "differs from the defaults"},
    {"help", "a table, a key, a word, or all", true, "",
     "print a table, a key, the keys about a word, or all there is, and exit; without a value an index of it; also -h"},
    {"version", "", false, "", "print the versions of this program and of what it is built on, and exit; also -V"},
    {"completion", "a shell", false, "bash,zsh,fish", "print a script that completes flags and values, and exit"},
    {"print_docs", "", false, "", "print docs/config.md and exit", true},
};

}  // namespace

std::span<const Mode> modes() { return kModes; }

std::string typed_name(const Mode& mode) {
  std::string name(mode.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace titan::config
