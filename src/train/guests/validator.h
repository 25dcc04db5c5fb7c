// Computes the loss on a held-out set at regular steps. Training is the same to the last bit with it and without.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "config/job_config.h"
#include "contract/batch_source.h"
#include "contract/train_contract.h"
#include "distributed/parallel_dims.h"
#include "metrics/metrics_processor.h"
#include "train/step/forward_backward.h"

namespace titan::train {

class Validator {
 public:
  // `source`: with validation.steps above 0, this rank's batches, without end; a pass takes the first ones. With -1
  // (the full set), the batches of all ranks together, [n * local_batch_size, T] on n ranks, the same on every rank,
  // with an end; rank r takes the r-th part of each batch. So every window counts once for any number of ranks, and
  // all ranks run the model equally often: a rank whose part is empty runs it on a row without labels. Every pass
  // reads the same windows, so that the losses of two steps, and of a resumed run, are comparable. (TorchTitan
  // continues reading from pass to pass.)
  //
  // `forward_backward` runs `model`. `world`: all ranks. All but the source must outlive this.
  Validator(const config::Validation& options, std::unique_ptr<BatchSource> source, LanguageModel& model,
            ForwardBackward& forward_backward, dist::ProcessGroup& world, const dist::Meshes& meshes,
            metrics::MetricsProcessor& metrics, std::int64_t last_step);

  // Runs a pass if `step` is due, and reports the mean loss over the set's tokens. Due are step 1, every
  // validation.freq steps and, with validation.at_last_step, `last_step` of the constructor. Returns true if there is
  // a result; a signal to stop ends the pass without one. Gradients, random numbers and the training data are
  // untouched, and every parameter is sharded again on return. Collective. Throws DataError, also if the set is too
  // small.
  bool run_if_due(std::int64_t step);

  // Sets the losses of passes before a resume, by step; NaN if the loss was not finite.
  void restore(const std::map<std::int64_t, double>& losses);
  // True if the pass after `step` is due and no rank knows its loss: the run ended between that step's checkpoint and
  // the pass. Collective.
  bool owes(std::int64_t step) const;
  // Drops the losses of later steps, for a run that continues after `step` again.
  void forget_after(std::int64_t step);

  // Returns the one of `steps` with the lowest loss; nullopt if none of them has a loss. Ranks that restored the same
  // losses return the same. Callable on any thread.
  std::optional<int> best_of(const std::vector<int>& steps) const;

 private:
  struct Totals {
    double loss = 0;               // sum over the labels that count, over all ranks
    std::int64_t tokens = 0;       // number of those labels
    std::int64_t rank_tokens = 0;  // tokens that this rank ran the model on
  };
  bool is_due(std::int64_t step) const;
  std::optional<Totals> pass();
  [[noreturn]] void throw_too_short() const;
  std::optional<Batch> next_batch(std::int64_t index);
  Batch rows_of_this_rank(const Batch& all) const;
  void report(std::int64_t step, const Totals& totals, double seconds);

  const config::Validation& options_;
  std::unique_ptr<BatchSource> source_;
  LanguageModel& model_;
  ForwardBackward& forward_backward_;
  dist::ProcessGroup& world_;
  const dist::Meshes& meshes_;
  metrics::MetricsProcessor& metrics_;
  std::int64_t last_step_;
  std::int64_t last_restored_ = 0;         // step of the last pass before a resume
  mutable std::mutex mutex_;               // guards losses_
  std::map<std::int64_t, double> losses_;  // by step, finite losses only
};

}  // namespace titan::train
