// Hashes what fully_shard writes during a step, gathered parameters and the gradients of shards, and hashes it again
// before its last use, so that bits which change in between are found.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/memory_observer.h"
#include "train/guests/numerics/bits_hash.h"

namespace titan::train {

// For models on the host. A gathered parameter that is the shard itself is left out: MemoryCheck hashes it.
class GatherCheck final : public fsdp::MemoryObserver {
 public:
  // Looks at the groups of `model`, which must outlive this. `with_gradients`: false if something else writes the
  // gradients of shards between backward and update, as a gradient scaler does.
  GatherCheck(nn::Module& model, bool with_gradients);
  ~GatherCheck() override;
  GatherCheck(const GatherCheck&) = delete;
  GatherCheck& operator=(const GatherCheck&) = delete;

  // Begins to watch, before a step's first forward.
  void begin();
  // Ends that after the last backward. Returns the names of what changed: "gathered layers.3.attention.wq.weight",
  // "gradient of layers.3.attention.wq.weight".
  std::vector<std::string> end();

  void gathered(const fsdp::FsdpParam& param) override;
  void frees(const fsdp::FsdpParam& param) override;
  void adds_gradient(const fsdp::FsdpParam& param) override;
  void added_gradient(const fsdp::FsdpParam& param) override;

 private:
  struct Noted {
    const void* tensor;  // a gradient that something else has replaced is not compared
    std::int64_t hash;
  };
  using NotedOf = std::map<const fsdp::FsdpParam*, Noted>;
  Noted note(const at::Tensor& tensor);
  void compare(NotedOf& noted, const fsdp::FsdpParam& param, const at::Tensor& tensor, const char* what);

  nn::Module& model_;
  bool with_gradients_;
  bool is_watching_ = false;
  NotedOf gathered_, gradients_;
  std::vector<std::string> changed_;
  BitsHash bits_hash_;
};

}  // namespace titan::train
