// What local ranks print, told apart: whole lines, each with the name of its rank before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan {

// The launcher's ends of pipes that ranks write to.
class RankOutput {
 public:
  RankOutput() = default;
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // Before the fork: a pipe for one stream of `rank`, whose lines go to `target` (1 or 2). Gives the end to dup2() onto
  // that stream in the rank, and to close() in the launcher. Throws std::system_error.
  int open(std::int64_t rank, int target);

  // Copies what has arrived; waits up to `timeout_ms` for something to. A line without an end is printed when the rank
  // closes its stream.
  void forward(int timeout_ms);
  // All that is still to come, until every rank has closed its streams.
  void drain();

 private:
  struct Stream {
    int fd;
    int target;
    std::string prefix;
    std::string line;  // so far
  };
  void read(Stream& stream);

  std::vector<Stream> streams_;
};

}  // namespace titan
