// Forwards the output of local ranks line by line, with the rank's name in front of each line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan {

// Holds the launcher's ends of the pipes that ranks write to.
class RankOutput {
 public:
  RankOutput() = default;
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // Opens a pipe for one stream of `rank`, whose lines go to `target` (1 or 2). Call it before fork. Returns the write
  // end: dup2() it onto the stream in the rank, and close() it in the launcher. Throws std::system_error.
  int open(std::int64_t rank, int target);

  // Waits up to `timeout_ms` for output, and prints the complete lines. A line without an end is printed when the rank
  // closes its stream.
  void forward(int timeout_ms);
  // Forwards all output until every rank has closed its streams.
  void drain();

 private:
  struct Stream {
    int fd;
    int target;
    std::string prefix;
    std::string line;  // the unfinished line so far
  };
  void read(Stream& stream);

  std::vector<Stream> streams_;
};

}  // namespace titan
