// Finds where the first NaN or infinity of a step came from: the module, the rank, and what else was not finite. It
// reads every tensor, so use it only for a step whose norm shows that something is wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/batch.h"
#include "contract/model.h"
#include "distributed/process_group.h"
#include "train/step/forward_backward.h"
#include "train/step/run_parameters.h"

namespace titan::train {

// Number of elements that are not finite.
struct NotFinite {
  std::int64_t nan = 0;
  std::int64_t inf = 0;  // infinities of either sign
  std::int64_t total() const { return nan + inf; }
};

// Findings of all ranks together.
struct NanReport {
  struct Named {
    std::string fqn;
    NotFinite count;  // over all ranks; each replica counts
  };
  // The first module, in the order of microbatches, layers and calls, whose output was not finite. A module inside
  // another ends first, so it is the innermost.
  struct Output {
    std::string module;  // "" is the full model
    int rank = 0;
    std::int64_t microbatch = 0;  // index in the step, from 0
    bool inputs_are_finite = true;
    NotFinite count;
  };
  std::optional<Output> output;
  std::vector<int> bad_loss_ranks;  // ranks whose loss was not finite when the forward was run again
  std::vector<Named> weights;       // weights that are not finite, in the model's order
  // Ranks that hold such weights, "rank 1 (node7)".
  std::vector<std::string> ranks_of_weights = {};
  // True if there are such weights, and the finite ones are far below the largest value of their dtype: those that are
  // not did not grow beyond it.
  bool other_weights_are_small = false;
  std::vector<Named> gradients;  // the same; empty if they were not checked
  bool has_gradients = false;
  std::size_t num_parameters = 0;
};

// Returns one line: "first not finite: the output of layers.3.feed_forward.w2 on rank 1, microbatch 0 (3 NaN, its
// inputs are finite, its weight holds 3 NaN); ...".
std::string describe(const NanReport& report);

class NanLocator {
 public:
  // `forward_backward` runs `model`; `world` are the ranks that run it together. All must outlive this.
  NanLocator(LanguageModel& model, const RunParameters& parameters, ForwardBackward& forward_backward,
             dist::ProcessGroup& world)
      : model_(model), parameters_(parameters), forward_backward_(forward_backward), world_(world) {}

  // Checks the weights and, `with_gradients`, their gradients. Then runs the forward of the microbatches once more
  // without a graph, and checks each module's inputs and output. Changes nothing; every parameter is sharded again on
  // return. The report is the same on every rank. Collective: every rank passes the same number of microbatches.
  NanReport locate(const std::vector<Batch>& microbatches, bool with_gradients);

  // True if the weights of all ranks are finite. Reads one value from the device. Collective.
  bool weights_are_finite();

 private:
  struct First;
  First run_forward(const std::vector<Batch>& microbatches);
  std::int64_t place_of(std::string_view module) const;
  void gather_first(NanReport& report, const First& first);
  std::vector<NanReport::Named> gather_counts(bool of_gradients);
  void gather_weight_facts(NanReport& report);

  LanguageModel& model_;
  const RunParameters& parameters_;
  ForwardBackward& forward_backward_;
  dist::ProcessGroup& world_;
};

}  // namespace titan::train
