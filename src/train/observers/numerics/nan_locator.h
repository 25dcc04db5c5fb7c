// Where the first NaN or infinity of a step came from: which module gave it, on which rank, and what was not finite
// beside it. It looks at every tensor, so it is for a step of which the norm has shown that something is wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/batch.h"
#include "contract/model.h"
#include "distributed/process_group.h"
#include "train/step/forward_backward.h"

namespace titan::train {

// How many elements are not finite.
struct NotFinite {
  std::int64_t nan = 0;
  std::int64_t inf = 0;  // of either sign
  std::int64_t total() const { return nan + inf; }
};

// What the ranks found together.
struct NanReport {
  struct Named {
    std::string fqn;
    NotFinite count;  // over all ranks; of replicas each counts
  };
  // The first module, in the order of microbatches and calls, whose output was not finite. A module inside another ends
  // first, so it is the innermost.
  struct Output {
    std::string module;  // "" is the whole model
    int rank = 0;
    std::int64_t microbatch = 0;  // of the step, from 0
    bool inputs_are_finite = true;
    NotFinite count;
  };
  std::optional<Output> output;
  std::vector<int> bad_loss_ranks;  // whose loss was not finite when the forward was run again
  std::vector<Named> weights;       // those that are not finite, in the model's order
  std::vector<Named> gradients;     // the same; empty where they were not looked at
  bool has_gradients = false;
  std::size_t num_parameters = 0;
};

// "first not finite: the output of layers.3.feed_forward.w2 on rank 1, microbatch 0 (its inputs are finite; its weight
// holds 3 NaN); ...": one line.
std::string describe(const NanReport& report);

class NanLocator {
 public:
  // `forward_backward` runs `model`; `world` are the ranks that run it together. All must outlive this.
  NanLocator(LanguageModel& model, ForwardBackward& forward_backward, dist::ProcessGroup& world)
      : model_(model), forward_backward_(forward_backward), world_(world) {}

  // Looks at the weights and, `with_gradients`, at the gradients that lie in them, and runs the forward of the
  // microbatches once more without a graph, with a look at each module's inputs and output. Nothing is changed, and every
  // parameter is sharded again on return. The report is the same on every rank. Collective: every rank gives as many
  // microbatches.
  NanReport locate(const std::vector<Batch>& microbatches, bool with_gradients);

  // Whether the weights of all ranks are numbers. One number is read from the device. Collective.
  bool weights_are_finite();

 private:
  struct First;
  First run_forward(const std::vector<Batch>& microbatches);
  void gather_first(NanReport& report, const First& first);
  std::vector<NanReport::Named> gather_counts(bool of_gradients);

  LanguageModel& model_;
  ForwardBackward& forward_backward_;
  dist::ProcessGroup& world_;
};

}  // namespace titan::train
