// Parses the command line of a training run, without applying it.
//
// Every key of job_config.h is a flag: `--section.key VALUE` or `--section.key=VALUE`; '-' and '_' are alike in names.
// A boolean is `--checkpoint.enable`, `--checkpoint.no-enable` or `--checkpoint.enable=false`. The last of several
// wins. The other flags are in modes.h; `-c`, `-h` and `-V` are short for three of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/keys/fields.h"
#include "config/keys/rank_list.h"

namespace titan::config {

struct Override {
  std::string key;  // "training.steps"
  FieldValue value;
  std::string flag;  // as typed, for messages
};

struct CommandLine {
  std::optional<std::string> config_file;  // --config FILE, -c FILE, --job.config_file FILE
  std::vector<Override> overrides;         // in the order of the command line
  bool dry_run = false;
  bool json = false;  // with dry_run
  bool print_config = false;
  bool show_origins = false;  // with print_config
  bool only_changed = false;  // with print_config
  bool print_docs = false;
  bool version = false;
  bool help = false;
  std::optional<std::string> help_topic;     // a table or a key
  std::optional<std::string> completion;     // bash, zsh or fish
  std::optional<std::int64_t> nproc;         // ranks to start on this machine
  bool oversubscribe = false;                // with nproc: without an upper limit
  std::optional<std::int64_t> max_restarts;  // with nproc: how often its ranks are started again
  std::optional<std::int64_t> min_nproc;     // with max_restarts: the smallest number of ranks to go on with
  std::optional<RankList> log_ranks;         // ranks whose log the terminal shows; nullopt: rank 0
  bool overwrite = false;                    // a run may start over in a folder that holds another run's results
  bool no_preflight = false;                 // a run may start although memory or disk look too small
  std::optional<std::int64_t> world_size;    // ranks to pretend with --dry-run
  std::optional<std::string> device;         // with --dry-run: the device that a rank must fit, as typed
  // All errors of the command line. load_job_config() throws them together with the file's; a caller that does not load
  // must call throw_if_wrong() of keys/source.h.
  std::vector<std::string> errors;
};

// Parses `args`, which do not include the program's name. Does not throw: see `errors`.
CommandLine parse_command_line(std::span<const std::string> args);

}  // namespace titan::config
