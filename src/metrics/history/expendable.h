// Files that a run can do without, such as events and tables.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace titan::metrics {

// Runs what writes such files. One thread at a time.
class Expendable {
 public:
  // `what`: names the files, in the plural: "metrics.csv and validation.csv".
  explicit Expendable(std::string what) : what_(std::move(what)) {}

  // Calls `write`. If that throws, warns with the reason, and every later call does nothing: files with a gap would
  // look complete.
  template <typename Write>
  void run(const Write& write) {
    if (has_failed_) return;
    try {
      write();
    } catch (const std::exception& error) {
      give_up(error);
    }
  }

  bool has_failed() const { return has_failed_; }

 private:
  void give_up(const std::exception& error);

  std::string what_;
  bool has_failed_ = false;
};

}  // namespace titan::metrics
