// The place of a command's results: standard output, or a file.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "apps/common/print_result.h"
#include "base/error.h"

namespace titan {

class ResultFile {
 public:
  // `path`: an existing file is replaced; "" is standard output. Throws ConfigError, which begins with `option`.
  ResultFile(const std::string& path, const std::string& option) : path_(path) {
    if (path.empty()) return;
    file_.reset(std::fopen(path.c_str(), "w"));
    if (!file_) throw ConfigError(option + path + " cannot be written: " + std::strerror(errno));
  }

  // When it returns, `text` has reached the operating system. Throws Error if it cannot be written.
  void write(std::string_view text) {
    if (!file_) return print_result(text);
    const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
    if (!written || std::fflush(file_.get()) != 0)
      throw Error(path_ + " cannot be written: " + std::strerror(errno), kExitFailed);
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace titan
