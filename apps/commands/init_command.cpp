#include "apps/commands/init_command.h"

#include <array>
#include <filesystem>
#include <string>
#include <system_error>

#include "apps/common/print_result.h"
#include "apps/flags/init_flags.h"
#include "base/error.h"
#include "base/installation.h"

namespace titan {
namespace {

constexpr std::array kCopied = {"configs", "assets", "deploy", "examples"};

// Returns the folder with the default tokenizer and corpus: that of the current folder, as in the repository, or the
// one that was installed with the program.
std::string default_assets() {
  const std::string here = "./assets";
  std::error_code error;
  const auto installed = installed_folder() / "assets";
  const bool is_here = std::filesystem::exists(here + "/tokenizer", error);
  return !is_here && std::filesystem::exists(installed, error) ? installed.string() : here;
}

// Copies a folder without its permissions: an installation is often read-only, and the copy is the user's own.
void copy_writable(const std::filesystem::path& source, const std::filesystem::path& target) {
  std::filesystem::create_directories(target);
  for (const auto& entry : std::filesystem::directory_iterator(source)) {
    const auto to = target / entry.path().filename();
    if (entry.is_directory()) {
      copy_writable(entry.path(), to);
    } else {
      std::filesystem::copy_file(entry.path(), to);
      std::filesystem::permissions(to, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
    }
  }
}

// Copies the configurations with their corpus and tokenizer, the files for clusters, and the examples to a folder of
// the user's own: paths in them start at the current folder, and an installation should not be written to.
void copy_examples(const std::filesystem::path& target) {
  const auto fail = [](const std::string& reason) { throw ConfigError("error: --examples: " + reason); };
  const auto installed = installed_folder();
  if (installed.empty())
    fail("this program runs from its build folder; the repository has configs/, assets/, deploy/ and examples/");
  if (target.empty()) fail("expected the name of a folder");
  for (const char* name : kCopied)
    if (std::filesystem::exists(target / name))
      fail((target / name).string() + " is there already, and would be overwritten; name another folder");
  try {
    for (const char* name : kCopied) copy_writable(installed / name, target / name);
  } catch (const std::filesystem::filesystem_error& error) {
    fail(std::string(error.what()) + "; remove what was copied, or name a folder that can be written");
  }
  print_result("Copied configs/, assets/, deploy/ and examples/ to " + target.string() +
               ". In that folder:  titan-train --nproc 2 --config configs/debug.toml\n");
}

}  // namespace

int run_init_command(const std::vector<std::string>& args) {
  InitFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  if (flags.examples) {
    copy_examples(*flags.examples);
    return kExitDone;
  }
  flags.assets = default_assets();
  print_result(models::starter_config(flags));
  return kExitDone;
}

}  // namespace titan
