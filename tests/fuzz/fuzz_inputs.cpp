// Feeds broken inputs to the program's readers, without libFuzzer: see kUsage. Each format has a process of its own, so
// that a crash of one says which input it was, and the others still run.
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/fs.h"
#include "tests/fuzz/memory_limit.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "usage: fuzz_inputs [--format NAME] [--seed S] [--count N | --seconds T] [--findings N] [--folder FOLDER]\n"
    "       fuzz_inputs --format NAME --replay FILE\n"
    "Reads the seeds, the corpus, and then per format N inputs (300) or as many as T seconds allow. An input must be\n"
    "accepted or refused with one of the program's errors, with little memory and processor time. Anything else is a\n"
    "finding: its input is written to FOLDER (.). After N findings (1) the next format follows.\n";

constexpr int kProcessorSeconds = 20;  // that an input may take; usual are milliseconds
constexpr std::size_t kLongestReason = 4000;

struct Options {
  std::string format;
  std::uint64_t seed = 1;
  std::uint64_t count = 300;
  std::uint64_t seconds = 0;  // 0: `count` decides
  std::uint64_t findings = 1;
  fs::path folder = ".";
  std::string replay;
};

// Holds what the process of a format leaves behind, whatever ends it.
struct Shared {
  std::uint64_t number;  // of the input that is being read
  std::uint64_t done;
  char reason[kLongestReason];
};

// Ends the process with SIGVTALRM if it computes for longer, until the next call.
void limit_time() {
  const itimerval limit = {{}, {kProcessorSeconds, 0}};
  setitimer(ITIMER_VIRTUAL, &limit, nullptr);
}

// Inputs of a format by number: the seeds, the corpus, changed ones. A long file of the corpus is not changed: it shows
// by its length that reading takes too long, and thousands of such readings would leave no time for anything else.
class Inputs {
 public:
  Inputs(const Target& target, std::uint64_t seed) : seed_(seed), mutator_(changed_, dictionary(target.words)) {
    for (auto& [name, bytes] : target.seeds()) whole_.push_back(std::move(bytes));
    num_valid_ = whole_.size();
    const fs::path corpus = fs::path(TITAN_FUZZ_TESTS) / "fuzz/corpus" / target.name;
    std::vector<fs::path> files;
    if (fs::exists(corpus))
      for (const auto& entry : fs::directory_iterator(corpus)) files.push_back(entry.path());
    std::ranges::sort(files);
    for (const fs::path& file : files) whole_.push_back(read_file(file));
    std::ranges::copy_if(whole_, std::back_inserter(changed_),
                         [](const std::string& input) { return input.size() <= kLongestChanged; });
  }
  std::uint64_t num_whole() const { return whole_.size(); }
  bool is_valid(std::uint64_t number) const { return number < num_valid_; }
  std::string get(std::uint64_t number) const {
    return number < whole_.size() ? whole_[number] : mutator_.make(seed_, number - whole_.size());
  }

 private:
  static constexpr std::size_t kLongestChanged = 16 << 10;

  std::uint64_t seed_;
  std::vector<std::string> whole_, changed_;
  std::size_t num_valid_ = 0;
  Mutator mutator_;
};

// Returns "" unless the input is a finding that does not end the process.
std::string reason_of(const Target& target, const std::string& input, bool is_valid) {
  limit_time();
  try {
    return target.run(input) || !is_valid ? "" : "a valid input is refused";
  } catch (const std::exception& error) {
    return error.what()[0] == '\0' ? "an exception without a message" : error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

double seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The process of a format. Reads the inputs from shared.number on; ends with 0 if there was no finding, else with 1.
int read_all(const Target& target, const Options& options, double end, Shared& shared) {
  spdlog::set_level(spdlog::level::off);
  const Inputs inputs(target, options.seed);
  const MemoryLimit limit;
  const std::uint64_t count = inputs.num_whole() + options.count;
  for (; options.seconds > 0 ? seconds_now() < end : shared.number < count; ++shared.number) {
    const std::string reason = reason_of(target, inputs.get(shared.number), inputs.is_valid(shared.number));
    ++shared.done;
    if (reason.empty()) continue;
    std::snprintf(shared.reason, kLongestReason, "%s", reason.c_str());
    return 1;
  }
  return 0;
}

std::string reason_of_end(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGVTALRM)
    return "more than " + std::to_string(kProcessorSeconds) + " seconds of processor time";
  if (WIFSIGNALED(status)) return std::string("killed by signal ") + strsignal(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

void write_finding(const Target& target, const Options& options, const Shared& shared, const std::string& reason,
                   const char* program) {
  const Inputs inputs(target, options.seed);
  const fs::path file = options.folder / (std::string(target.name) + "-" + std::to_string(options.seed) + "-" +
                                          std::to_string(shared.number));
  write_over(file, inputs.get(shared.number));
  std::printf(
      "FINDING %s: %s\n  input:  %s\n  replay: %s --format %s --replay %s\n  once it is fixed, keep the input in "
      "tests/fuzz/corpus/%s/\n",
      target.name, reason.c_str(), file.c_str(), program, target.name, file.c_str(), target.name);
}

// Returns the number of findings.
std::uint64_t fuzz(const Target& target, const Options& options, Shared& shared, const char* program) {
  const double end = seconds_now() + static_cast<double>(options.seconds);
  std::uint64_t findings = 0;
  shared = {};
  for (;;) {
    shared.reason[0] = '\0';
    std::fflush(stdout);
    const pid_t child = fork();
    if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (child == 0) {
      const int code = read_all(target, options, end, shared);
      std::fflush(nullptr);
      _exit(code);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (status == 0) break;
    write_finding(target, options, shared, shared.reason[0] != '\0' ? shared.reason : reason_of_end(status), program);
    if (++findings >= options.findings) break;
    ++shared.number;
  }
  std::printf("%s %s: %llu inputs, seed %llu\n", findings == 0 ? "ok     " : "FAILED ", target.name,
              static_cast<unsigned long long>(shared.done), static_cast<unsigned long long>(options.seed));
  return findings;
}

std::optional<Options> parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i], value = arguments[i + 1];
    const std::pair<std::string_view, std::uint64_t*> numbers[] = {{"--seed", &options.seed},
                                                                   {"--count", &options.count},
                                                                   {"--seconds", &options.seconds},
                                                                   {"--findings", &options.findings}};
    bool is_known = true;
    if (name == "--format") {
      options.format = value;
    } else if (name == "--replay") {
      options.replay = value;
    } else if (name == "--folder") {
      options.folder = value;
    } else {
      is_known = false;
      for (const auto& [known, number] : numbers) {
        if (name != known) continue;
        is_known =
            std::from_chars(value.data(), value.data() + value.size(), *number).ptr == value.data() + value.size();
      }
    }
    if (!is_known) return std::nullopt;
  }
  if (count % 2 == 0 || (options.replay.empty() == false && options.format.empty())) return std::nullopt;
  return options;
}

int replay(const Target& target, const Options& options) {
  const std::string input = read_file(options.replay);
  const MemoryLimit limit;
  const std::string reason = reason_of(target, input, /*is_valid=*/false);
  std::printf("%s\n", reason.empty() ? "no finding" : reason.c_str());
  return reason.empty() ? 0 : 1;
}

int run(const Options& options, const char* program) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  const MemoryFolder folder;
  MemoryFolder::put_into(folder.path());
  bool is_known = false;
  std::uint64_t findings = 0;
  for (const Target& target : kTargets) {
    if (!options.format.empty() && options.format != target.name) continue;
    is_known = true;
    if (!options.replay.empty()) return replay(target, options);
    findings += fuzz(target, options, *static_cast<Shared*>(memory), program);
  }
  if (is_known) return findings == 0 ? 0 : 1;
  std::fprintf(stderr, "fuzz_inputs: no format %s; there are", options.format.c_str());
  for (const Target& target : kTargets) std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace
}  // namespace titan::fuzz

int main(int count, char** arguments) {
  const auto options = titan::fuzz::parse(count, arguments);
  if (!options) {
    std::fputs(titan::fuzz::kUsage, stderr);
    return 2;
  }
  try {
    return titan::fuzz::run(*options, arguments[0]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_inputs: %s\n", error.what());
    return 2;
  }
}
