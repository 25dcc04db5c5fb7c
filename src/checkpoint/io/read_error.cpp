#include "checkpoint/io/read_error.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "checkpoint/io/discard.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using std::chrono::milliseconds;

constexpr std::array kPauses = {milliseconds(100), milliseconds(300), milliseconds(1000)};

// Errors that may pass: of a disk or a network file system under way, and of a lack of memory or descriptors.
constexpr std::array kPassing = {EIO,     ESTALE,    EAGAIN,       EINTR,      EBUSY,        ENOMEM,    EMFILE,
                                 ENFILE,  ENOBUFS,   ETIMEDOUT,    EREMOTEIO,  ENETDOWN,     ENETRESET, ENETUNREACH,
                                 ENOLINK, EHOSTDOWN, EHOSTUNREACH, ECONNRESET, ECONNABORTED, ENOTCONN,  ESHUTDOWN};

bool may_pass(int error) { return std::ranges::find(kPassing, error) != kPassing.end(); }

bool means_absence(int error) { return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EISDIR; }

std::string text_of(const char* action, const fs::path& path, int error) {
  return std::string("cannot ") + action + " " + path.string() + ": " + std::strerror(error);
}

// Returns the status of what is at `path`; nullopt if there is nothing. Throws ReadError.
std::optional<struct stat> status_of(const fs::path& path) {
  struct stat status {};
  const auto look = [&] { return ::stat(path.c_str(), &status) == 0 ? 0 : errno; };
  const int error = retry_after(look(), "look at", path, look);
  if (error == 0) return status;
  if (means_absence(error)) return std::nullopt;
  fail_to_read("look at", path, error);
}

}  // namespace

int retry_after(int error, const char* action, const fs::path& path, const std::function<int()>& again) {
  for (std::size_t i = 0; i < kPauses.size() && may_pass(error); ++i) {
    warn_once(text_of(action, path, error) + "; trying again (" + std::to_string(i + 1) + " of " +
              std::to_string(kPauses.size()) + ")");
    std::this_thread::sleep_for(kPauses[i]);
    error = again();
  }
  return error;
}

void fail_to_read(const char* action, const fs::path& path, int error) {
  if (means_absence(error)) throw CheckpointError(text_of(action, path, error));
  throw ReadError(
      text_of(action, path, error) + (may_pass(error) ? ", also when tried again" : "") +
      ". This is an error of the system, and the checkpoint may be whole: make it readable, and start again");
}

fs::file_type type_of(const fs::path& path) {
  const auto status = status_of(path);
  if (!status) return fs::file_type::not_found;
  if (S_ISREG(status->st_mode)) return fs::file_type::regular;
  return S_ISDIR(status->st_mode) ? fs::file_type::directory : fs::file_type::unknown;
}

std::optional<std::uint64_t> size_of(const fs::path& path) {
  const auto status = status_of(path);
  if (!status || !S_ISREG(status->st_mode)) return std::nullopt;
  return static_cast<std::uint64_t>(status->st_size);
}

std::vector<std::string> listing_of(const fs::path& folder) {
  std::vector<std::string> names;
  const auto list = [&] {
    names.clear();
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
      names.push_back(entry->path().filename().string());
    return error.value();
  };
  const int error = retry_after(list(), "list", folder, list);
  if (error != 0 && !means_absence(error)) fail_to_read("list", folder, error);
  return names;
}

}  // namespace titan::checkpoint
