#include "apps/doctor/doctor_command.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "apps/common/print_result.h"
#include "apps/common/version.h"
#include "apps/doctor/axis_rates.h"
#include "apps/doctor/doctor_report.h"
#include "apps/doctor/machine.h"
#include "apps/doctor/network.h"
#include "apps/doctor/rates.h"
#include "apps/flags/doctor_flags.h"
#include "apps/train/checked_config.h"
#include "apps/train/checked_input.h"
#include "apps/train/pick_device.h"
#include "apps/train/preflight.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/speaks.h"
#include "base/text.h"
#include "config/command_line/command_line.h"
#include "config/keys/source.h"
#include "config/paths.h"
#include "distributed/world.h"
#include "library/code_choice.h"
#include "library/run_or_report.h"
#include "train/setup.h"

namespace titan {
namespace {

using doctor::Checks;

// Everything that the checks examine.
struct Subject {
  LaunchEnv launch;
  config::CommandLine command_line;
  config::JobConfig config = {};
  std::optional<CheckedConfig> checked = {};  // nullopt without a valid configuration
  c10::DeviceType device_type = c10::DeviceType::CPU;
};

bool has_config(const config::CommandLine& command_line) {
  return command_line.config_file || !command_line.overrides.empty();
}

std::string program() {
  auto lines = split(version_text(), '\n');
  std::erase(lines, "");
  return join(lines, "\n");
}

// Adds the result of `body`, or a failure if it throws.
void add(Checks& checks, const std::string& name, const std::string& advice, const std::function<std::string()>& body) {
  try {
    checks.push_back(doctor::ok(name, body()));
  } catch (const std::exception& error) {
    checks.push_back(doctor::failure(name, error.what(), advice));
  }
}

void check_config(Subject& subject, Checks& checks) {
  if (!has_config(subject.command_line)) return;
  add(checks, "configuration", "correct it; titan-train --help KEY says what a key takes", [&] {
    subject.checked = check_to_print(subject.command_line, subject.launch);
    subject.config = subject.checked->config;
    return subject.command_line.config_file.value_or("keys") + ": " +
           (subject.checked->warnings.empty() ? "no warnings" : join(subject.checked->warnings, "\n"));
  });
}

void pick_device(Subject& subject, Checks& checks) {
  try {
    subject.device_type = pick_device_type(subject.config, subject.launch);
  } catch (const ConfigError& error) {
    checks.push_back(
        doctor::failure("device of a rank", error.what(), "change training.device or the number of ranks"));
  }
}

// Checks the files and the room for the run, on one rank per machine, as before a run.
void check_needs(const Subject& subject, Checks& checks) {
  if (!subject.checked || !speaks_for_machine(subject.launch)) return;
  add(checks, "files of the run", "correct the paths, or bring the files here", [&] {
    check_files(*subject.checked);
    return std::string("all that the configuration names are there");
  });
  add(checks, "room for the run", "", [&] {
    const auto warnings = check_room(*subject.checked, subject.launch, subject.device_type);
    return warnings.empty() ? "memory and disk are enough" : join(warnings, "\n");
  });
}

// Runs the checks that do not need other ranks.
Checks check_alone(Subject& subject) {
  Checks checks;
  check_config(subject, checks);
  train::set_num_threads(subject.launch.local_world_size);
  choose_cpu_code(subject.config.cpu);
  checks.insert(checks.begin(), doctor::ok("program", program()));  // queries ATen, so it runs after choose_cpu_code()
  pick_device(subject, checks);
  for (auto& check : doctor::check_machine(subject.launch, subject.device_type)) checks.push_back(std::move(check));
  for (auto& check : doctor::check_network(subject.launch)) checks.push_back(std::move(check));
  if (speaks_for_job(subject.launch)) checks.push_back(doctor::check_disk(config::checkpoint_folder(subject.config)));
  check_needs(subject, checks);
  return checks;
}

int print(const DoctorFlags& flags, const std::vector<doctor::Finding>& findings) {
  print_result(flags.json ? doctor::to_json(findings) : doctor::to_text(findings));
  return doctor::has_failure(findings) ? kExitFailed : kExitDone;
}

// Gathers the results of all ranks. Returns the same exit code on every rank.
int check_together(const DoctorFlags& flags, const Subject& subject, Checks checks, dist::World& world) {
  const ProcessorShare share = train::share_processors(world);
  checks.push_back(doctor::check_threads(share.cores, at::get_num_threads(), share.ranks, !world.device().is_cpu()));
  for (auto& check : doctor::check_ranks(world, subject.config.training.mixed_precision_param))
    checks.push_back(std::move(check));
  if (subject.checked)
    for (auto& check : doctor::check_axes(world, subject.config.parallelism)) checks.push_back(std::move(check));
  std::vector<Checks> by_rank;
  for (const auto& message : world.group().all_gather_bytes(doctor::to_message(checks)))
    by_rank.push_back(doctor::from_message(message));
  const auto findings = doctor::merge(by_rank);
  if (speaks_for_job(subject.launch)) print(flags, findings);
  world.shutdown();
  return doctor::has_failure(findings) ? kExitFailed : kExitDone;
}

// Prints only the checks of this rank, because the ranks could not connect.
int print_lonely(const DoctorFlags& flags, Checks checks, const std::string& why) {
  checks.push_back(doctor::failure("ranks meet", why,
                                   "see that all ranks run, that MASTER_ADDR and MASTER_PORT are the same on all, and "
                                   "that no firewall is between the machines"));
  return print(flags, doctor::merge({checks}));
}

int examine(const DoctorFlags& flags, Subject subject) {
  const Checks checks = check_alone(subject);
  std::unique_ptr<dist::World> world;
  try {
    world = std::make_unique<dist::World>(subject.launch, subject.device_type,
                                          std::chrono::seconds(subject.config.comm.init_timeout_seconds));
  } catch (const std::exception& error) {
    if (!speaks_for_job(subject.launch)) throw;  // printed to standard error, because rank 0 may be missing
    return print_lonely(flags, checks, error.what());
  }
  return run_or_report(std::move(world),
                       [&](dist::World& ranks) { return check_together(flags, subject, checks, ranks); });
}

config::CommandLine command_line_of(const DoctorFlags& flags, const std::vector<std::string>& keys) {
  std::vector<std::string> words = keys;
  if (flags.config_file) words.insert(words.end(), {"--config", *flags.config_file});
  return config::parse_command_line(words);
}

}  // namespace

int run_doctor(const std::vector<std::string>& args) {
  DoctorFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  log_to_stderr("titan-train doctor");
  Subject subject;
  try {
    subject.launch = detect_launch();
  } catch (const ConfigError& error) {
    return print(flags, doctor::merge({{doctor::failure("launch", error.what(),
                                                        "correct the variables, or unset them to start alone")}}));
  }
  subject.command_line = command_line_of(flags, flags.keys);
  report_once(speaks_for_job(subject.launch), [&] {
    config::throw_if_wrong(subject.command_line.errors);
    return true;
  });
  return examine(flags, std::move(subject));
}

}  // namespace titan
