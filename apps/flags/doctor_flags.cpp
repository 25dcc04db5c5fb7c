#include "apps/flags/doctor_flags.h"

#include "apps/flags/option_values.h"

namespace titan {
namespace {

constexpr const char* kDoctorHelp =
    R"(Whether this machine, or all machines of a job, are ready to train, and what to do where they are not.
Start it as the job is started: titan-train doctor alone, with --nproc, or under torchrun, mpirun or srun.
With --config, and keys as for a run, it also checks what that run needs; nothing is trained.)";

constexpr const char* kDoctorExitCodes =
    "Exit codes: 0 nothing fails (there may be warnings), 1 a check fails, 2 wrong command line.";

}  // namespace

void declare(CLI::App& app, DoctorFlags& flags) {
  app.name("titan-train doctor");
  app.description(kDoctorHelp);
  app.footer(kDoctorExitCodes);
  app.allow_extras();
  suggest_path(app.add_option("--config", flags.config_file, "also check what a run with this TOML file needs"));
  app.add_option("--nproc", flags.nproc, "ranks to start on this machine, to check them together")
      ->check(at_least_one());
  app.add_flag("--oversubscribe", flags.oversubscribe, "with --nproc: however many the machine is good for");
  app.add_flag("--json", flags.json, "one JSON object instead of text");
  app.callback([&app, &flags] { flags.keys = app.remaining(); });
}

}  // namespace titan
