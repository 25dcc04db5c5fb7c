#include "data/io/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxNamesInMessage = 8;

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

bool has_extension(const fs::path& path, std::span<const std::string> extensions) {
  const std::string name = path.filename().string();
  return extensions.empty() ||
         std::ranges::any_of(extensions, [&](const std::string& extension) { return name.ends_with(extension); });
}

std::vector<fs::path> walk(const fs::path& root, std::span<const std::string> extensions) {
  std::vector<fs::path> files;
  try {
    auto entry = fs::recursive_directory_iterator(root, fs::directory_options::follow_directory_symlink);
    for (const auto end = fs::end(entry); entry != end; ++entry) {
      if (is_hidden(entry->path())) {
        entry.disable_recursion_pending();
      } else if (entry->is_symlink() && !entry->exists() && has_extension(entry->path(), extensions)) {
        throw DataError("cannot read " + entry->path().string() + ": it is a link to " +
                        fs::read_symlink(entry->path()).string() +
                        ", which is not there. Restore that, or remove the link");
      } else if (entry->is_regular_file() && has_extension(entry->path(), extensions)) {
        files.push_back(entry->path());
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError("cannot list " + root.string() + ": " + error.what());
  }
  std::ranges::sort(files, {}, [&](const fs::path& file) { return file.lexically_relative(root).native(); });
  return files;
}

std::vector<fs::path> files_of_matches(const fs::path& pattern, const std::vector<fs::path>& matches,
                                       std::span<const std::string> extensions) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const fs::path& match : matches) {
    if (fs::is_directory(match, ignored)) {
      const auto below = walk(match, extensions);
      files.insert(files.end(), below.begin(), below.end());
    } else if (has_extension(match, extensions)) {
      files.push_back(match);
    }
  }
  if (files.empty())
    throw DataError("no dataset at " + pattern.string() + ": it matches " + counted(std::ssize(matches), "name") +
                    ", and no file ending in " + join(extensions, " or "));
  return files;
}

std::string reason() {
  const std::string text = std::strerror(errno);
  return errno == EMFILE ? text + " (this process may have no more: raise ulimit -Hn, or join the data's files)" : text;
}

// Returns nullopt if the descriptor is not of a regular file.
std::optional<FileStamp> stamp_of(int descriptor) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return FileStamp{static_cast<std::uint64_t>(info.st_size),
                   std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace

fs::path folder_of(const fs::path& root) {
  std::error_code ignored;
  if (fs::is_directory(root, ignored)) return root;
  fs::path folder = root.parent_path();
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

std::vector<fs::path> list_files(const fs::path& root, std::span<const std::string> extensions) {
  std::error_code ignored;
  if (root.empty())
    throw DataError("no dataset path is set: give training.dataset_path a file or a folder", {"training.dataset_path"});
  if (const auto matches = matches_of(root); !matches.empty()) return files_of_matches(root, matches, extensions);
  if (!fs::exists(root, ignored)) {
    throw DataError("no dataset at " + root.string() + ": there is no such file or folder (looked from " +
                    fs::current_path(ignored).string() + ")");
  }
  if (!fs::is_directory(root, ignored)) return {root};
  std::vector<fs::path> files = walk(root, extensions);
  if (files.empty()) {
    const std::string wanted = extensions.empty() ? "files" : "files ending in " + join(extensions, " or ");
    throw DataError("no dataset in " + root.string() + ": looked for " + wanted +
                    " (hidden ones do not count), the folder holds " + describe_folder(root) + ".");
  }
  return files;
}

std::string describe_folder(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (names.empty()) return "nothing";
  std::ranges::sort(names);
  const std::size_t count = names.size();
  names.resize(std::min(count, kMaxNamesInMessage));
  return std::to_string(count) + (count == 1 ? " entry: " : " entries: ") + join(names, ", ") +
         (count > names.size() ? ", ..." : "");
}

void throw_changed(const fs::path& path, const FileStamp& before, const FileStamp& now) {
  const std::string how = now.size < before.size   ? "become shorter"
                          : now.size > before.size ? "become longer"
                                                   : "been written to";
  throw DataError(path.string() + " has " + how + " while it was in use: it had " + std::to_string(before.size) +
                  " bytes when it was opened first, it has " + std::to_string(now.size) +
                  " now. Datasets must not change during a run.");
}

InputFile::InputFile(const fs::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw DataError("cannot open " + path.string() + ": " + reason());
  const auto stamp = stamp_of(descriptor_);
  if (!stamp) {
    ::close(descriptor_);
    throw DataError("cannot read " + path.string() + ": it is not a regular file");
  }
  stamp_ = *stamp;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), stamp_(other.stamp_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read_at(std::uint64_t offset, std::span<char> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw DataError("cannot read " + path_.string() + ": " + reason());
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  // Checks after the read, so that no call returns bytes of a changed file.
  const FileStamp now = stamp_of(descriptor_).value_or(FileStamp{});
  if (now != stamp_) throw_changed(path_, stamp_, now);
  if (done < out.size())
    throw DataError("cannot read " + path_.string() + ": it ends at " + std::to_string(offset + done));
}

}  // namespace titan::data
