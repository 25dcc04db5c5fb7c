#include "apps/installed_torch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <system_error>

#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/installation.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

// Prints torch's folder. Looks it up without importing it, which would take seconds, and not in the current folder.
constexpr const char* kWhereIsTorch =
    "import importlib.util, sys\n"
    "sys.path[:] = [place for place in sys.path if place]\n"
    "spec = importlib.util.find_spec('torch')\n"
    "print(spec.submodule_search_locations[0] if spec and spec.origin else '', end='')\n";

// Returns the variable's value; empty if it is not set.
std::string value_of(const char* variable) { return get_env(variable).value_or(""); }

constexpr const char* kRestarted = "TITAN_RESTARTED";  // holds the process's id

// Throws ConfigError with what to do; `python` is where torch should be.
[[noreturn]] void fail(const std::string& reason, const std::string& python) {
  const std::string remedy = value_of("TITAN_TORCH").empty()
                                 ? ". Install it: " + python +
                                       " -m pip install 'torch==" TITAN_TORCH_SERIES
                                       ".*'; or name another Python with TITAN_PYTHON=/path/to/python3"
                                 : ". Correct or unset TITAN_TORCH";
  throw ConfigError("error: torch " TITAN_TORCH_SERIES " is needed, and " + reason + remedy);
}

// Runs `python` with a program text. Returns what it prints; throws ConfigError if it fails.
std::string output_of(const std::string& python, const char* program) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::execlp(python.c_str(), python.c_str(), "-c", program, nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer;
  ssize_t count = 0;
  while ((count = ::read(ends[0], buffer.data(), buffer.size())) > 0) text.append(buffer.data(), count);
  ::close(ends[0]);
  int status = -1;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) fail("there is no '" + python + "' to find it with", python);
  if (status != 0) fail("'" + python + "' could not be asked where its torch is", python);
  return text;
}

fs::path torch_of(const std::string& python) {
  const fs::path torch = output_of(python, kWhereIsTorch);
  if (torch.empty()) fail("'" + python + "' has none", python);
  return torch;
}

// Returns the Python of the environment that the program was installed to, or the one that a shell would start.
std::string neighboring_python() {
  const fs::path beside = program_file().parent_path() / "python3";
  std::error_code error;
  return fs::exists(beside, error) ? beside.string() : "python3";
}

fs::path find_torch(const fs::path& installed) {
  if (const std::string named = value_of("TITAN_TORCH"); !named.empty()) return fs::absolute(named).lexically_normal();
  if (const std::string python = value_of("TITAN_PYTHON"); !python.empty()) return torch_of(python);
  const fs::path beside = installed.parent_path() / "torch";
  std::error_code error;
  return fs::exists(beside / "lib/libtorch_cpu.so", error) ? beside : torch_of(neighboring_python());
}

void check_version(const fs::path& torch) {
  std::error_code error;
  if (!fs::exists(torch / "version.py", error) || !fs::exists(torch / "lib/libtorch_cpu.so", error))
    fail(torch.string() + " is not the folder of a torch wheel", neighboring_python());
  const std::string text = read_file(torch / "version.py");
  std::smatch found;
  std::regex_search(text, found, std::regex("__version__ *= *'([^']*)'"));
  const std::string version = found[1];
  if (!version.starts_with(TITAN_TORCH_SERIES "."))
    fail(torch.string() + " has torch " + version, neighboring_python());
}

// Returns the folders that the loader searches first: this program's, torch's, and the wheels with CUDA and NCCL that
// torch was installed with. Then no library of the same name elsewhere replaces one.
std::string search_path(const fs::path& installed, const fs::path& torch) {
  std::string out = (installed / "lib").string() + ":" + (torch / "lib").string();
  for (const fs::path& wheel : matches_of(torch.parent_path() / "nvidia/*/lib")) out += ":" + wheel.string();
  return out;
}

}  // namespace

bool use_installed_torch() {
  const fs::path installed = installed_folder();
  if (installed.empty()) return false;
  const fs::path torch = find_torch(installed);
  check_version(torch);
  const std::string before = value_of("LD_LIBRARY_PATH");
  // The engine's own search path leads to a torch beside the package, if no variable leads elsewhere.
  if (before.empty() && torch == installed.parent_path() / "torch") return false;
  const std::string path = search_path(installed, torch);
  if (before == path || before.starts_with(path + ":")) return false;
  const std::string process = std::to_string(::getpid());  // stays the same through exec
  if (value_of(kRestarted) == process)
    throw Error(
        "LD_LIBRARY_PATH does not reach " + program_file().string() +
            ": the system removes it from programs with special rights (setuid, setcap). Install torch beside the "
            "program's package, or take the rights away",
        kExitFailed);
  setenv(kRestarted, process.c_str(), 1);
  setenv("TITAN_TORCH", torch.c_str(), 1);
  setenv("LD_LIBRARY_PATH", (before.empty() ? path : path + ":" + before).c_str(), 1);
  return true;
}

}  // namespace titan
