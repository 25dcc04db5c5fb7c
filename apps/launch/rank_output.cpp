#include "apps/launch/rank_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/fs.h"

namespace titan {

RankOutput::~RankOutput() {
  for (const Stream& stream : streams_) {
    if (stream.fd >= 0) ::close(stream.fd);
  }
}

int RankOutput::open(std::int64_t rank, int target) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "no pipe for the output of rank " + std::to_string(rank));
  streams_.push_back({ends[0], target, "[rank" + std::to_string(rank) + "] ", {}});
  return ends[1];
}

void RankOutput::read(Stream& stream) {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::read(stream.fd, buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return;
  if (count > 0) stream.line.append(buffer.data(), static_cast<std::size_t>(count));
  if (count <= 0) {
    ::close(stream.fd);
    stream.fd = -1;
    if (!stream.line.empty()) stream.line += '\n';
  }
  std::string out;
  std::size_t begin = 0;
  for (std::size_t end; (end = stream.line.find('\n', begin)) != std::string::npos; begin = end + 1)
    out += stream.prefix + stream.line.substr(begin, end + 1 - begin);
  stream.line.erase(0, begin);
  // One write, so that lines of several writers do not mix. A failure is ignored: the reader may be gone.
  write_all(stream.target, out);
}

void RankOutput::forward(int timeout_ms) {
  std::vector<pollfd> polled;
  for (const Stream& stream : streams_) polled.push_back({stream.fd, POLLIN, 0});  // poll ignores a negative fd
  if (::poll(polled.data(), polled.size(), timeout_ms) <= 0) return;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents != 0) read(streams_[i]);
  }
}

void RankOutput::drain() {
  while (std::ranges::any_of(streams_, [](const Stream& stream) { return stream.fd >= 0; })) forward(-1);
}

}  // namespace titan
