// Prints the texts of several rows, which grow and end in any order, one after the other.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace titan {

class OrderedOutput {
 public:
  explicit OrderedOutput(std::function<void(const std::string&)> print) : print_(std::move(print)) {}

  // Adds to the text of a row that has not ended: prints it at once if all rows before have ended.
  void add(std::size_t row, const std::string& text) {
    if (row == first_) return print_(text);
    waiting_[row].text += text;
  }

  // Ends a row. Each row of 0, 1, ... must end once.
  void end(std::size_t row) {
    waiting_[row].has_ended = true;
    while (waiting_.contains(first_) && waiting_[first_].has_ended) {
      waiting_.erase(first_++);
      if (const auto next = waiting_.find(first_); next != waiting_.end()) print_(std::exchange(next->second.text, ""));
    }
  }

 private:
  struct Waiting {
    std::string text;  // not printed yet
    bool has_ended = false;
  };

  std::function<void(const std::string&)> print_;
  std::size_t first_ = 0;  // the row whose text is printed as it grows
  std::map<std::size_t, Waiting> waiting_;
};

}  // namespace titan
