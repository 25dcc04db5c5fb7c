// A folder for one test.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace titan::test {

// A new folder, removed at the end of the test. `parent`: memory_folder() if flushes to the disk would cost time.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "titan-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::system_error(errno, std::generic_category(), "mkdtemp " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  // Writes the file, and makes the folders that it is in.
  std::filesystem::path write(const std::string& name, const std::string& text, bool append = false) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, append ? std::ios::app : std::ios::trunc) << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace titan::test
