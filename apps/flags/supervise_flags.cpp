#include "apps/flags/supervise_flags.h"

#include "apps/flags/option_values.h"

namespace titan {

void declare(CLI::App& app, SuperviseFlags& flags) {
  app.name("titan-train supervise");
  app.description(
      R"(Runs a launcher that starts titan-train, and again after a crash or a hang: the run resumes from its newest intact
checkpoint. It is not started again after exit codes 0, 2, 4 and 75, nor after a signal, and is given up after three
starts in a row that saved nothing. Ranks of this machine need no other launcher: titan-train --nproc N --max-restarts K.
  titan-train supervise -- mpirun -n 8 titan-train --config job.toml --checkpoint.enable
  titan-train supervise --max-restarts 10 -- srun titan-train --config job.toml --checkpoint.enable)");
  app.add_option("--max-restarts", flags.max_restarts, "how often to start the command again")
      ->capture_default_str()
      ->check(at_least_one());
  app.add_option("COMMAND", flags.command, "the launcher with its arguments, after --")->required()->expected(1, -1);
}

}  // namespace titan
