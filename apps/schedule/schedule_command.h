// `titan-train schedule` draws and checks schedules of pipeline parallelism.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "schedule". The result goes to standard output. Throws ConfigError for a wrong command
// line or a size without a schedule, DataError for a wrong order in a file.
int run_schedule_command(const std::vector<std::string>& args);

}  // namespace titan
