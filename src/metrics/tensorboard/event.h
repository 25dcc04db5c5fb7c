// Encodes the events that TensorBoard reads: the protocol buffer tensorflow.Event, defined in
// tensorboard/compat/proto/event.proto. Encoded by hand: only five of its messages are needed, and the protobuf library
// would be a dependency that must match the version of its generated code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace titan::metrics::tensorboard {

struct Histogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_of_squares = 0;
  // counts[i] values are in (bucket_limits[i - 1], bucket_limits[i]]; both have the same length, limits ascend.
  std::vector<double> bucket_limits, counts;
};

// Time and step of an event. `unix_time` in seconds.
struct Moment {
  double unix_time = 0;
  std::int64_t step = 0;
};

using Scalars = std::vector<std::pair<std::string_view, float>>;  // tag, value

// Encodes events into one reused buffer: a result is valid until the next call.
class EventEncoder {
 public:
  EventEncoder();
  // Returns the first event of a file, with the version of the format.
  std::string_view version(double unix_time);
  // Returns one event with all scalars of a step. TensorBoard shows a NaN or an infinity as such.
  std::string_view scalars(Moment moment, const Scalars& scalars);
  // Returns an event that shows `text`, Markdown, under the tag in the "Text" tab.
  std::string_view text(Moment moment, std::string_view tag, std::string_view text);
  std::string_view histogram(Moment moment, std::string_view tag, const Histogram& histogram);
  // Returns an event that tells a running TensorBoard of a restart: its data of this step and later ones is void.
  std::string_view restart(Moment moment);

 private:
  std::string out_;
};

// Returns the step of an encoded event (0 if it has none), or nullopt for bytes that are not an event.
std::optional<std::int64_t> step_of_event(std::string_view event);

}  // namespace titan::metrics::tensorboard
