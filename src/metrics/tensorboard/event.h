// The events that TensorBoard reads, as bytes: the protocol buffer tensorflow.Event, whose definition is
// tensorboard/compat/proto/event.proto. It is encoded by hand: five of its messages are all that is needed, and protobuf's
// library would be one more to find at the version that its generated code asks for.
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
  // counts[i] values lie in (bucket_limits[i - 1], bucket_limits[i]]; both have the same length, limits ascend.
  std::vector<double> bucket_limits, counts;
};

// When and at which step something happened. `unix_time` in seconds.
struct Moment {
  double unix_time = 0;
  std::int64_t step = 0;
};

using Scalars = std::vector<std::pair<std::string_view, float>>;  // tag, value

// Makes events one after another in the same memory: what a function returns holds until the next call.
class EventEncoder {
 public:
  EventEncoder();
  // The first event of a file: which version of the format it has.
  std::string_view version(double unix_time);
  // All scalars of a step in one event. A NaN or an infinity is shown as such by TensorBoard.
  std::string_view scalars(Moment moment, const Scalars& scalars);
  // `text` is Markdown, under the tag in the "Text" tab.
  std::string_view text(Moment moment, std::string_view tag, std::string_view text);
  std::string_view histogram(Moment moment, std::string_view tag, const Histogram& histogram);
  // Tells a TensorBoard that is looking that the run began again: what it has of this step and later ones is void.
  std::string_view restart(Moment moment);

 private:
  std::string out_;
};

// The step of an encoded event (0 where it has none); nothing for bytes that are not an event.
std::optional<std::int64_t> step_of_event(std::string_view event);

}  // namespace titan::metrics::tensorboard
