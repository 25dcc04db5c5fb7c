#include "train/dry_run/memory_log.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <memory>

#include "nn/ops/meta_run.h"

namespace titan::train {
namespace {

struct Block {
  MemoryLog* log;
  std::uint64_t generation;
  std::size_t index;
};

}  // namespace

class MemoryLog::Allocator : public c10::Allocator {
 public:
  explicit Allocator(MemoryLog& log) : log_(log) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    const at::Device meta(at::kMeta);
    if (bytes == 0 || !log_.writes_) return {nullptr, meta};
    auto* block = new Block{&log_, log_.generation_, log_.allocations_.size()};
    log_.allocations_.push_back({.bytes = static_cast<std::int64_t>(bytes),
                                 .born = log_.now(),
                                 .use = current_memory_use(),
                                 .stream = meta_run::current_stream()});
    log_.events_.push_back(block->index);
    return {nullptr, block, &release, meta};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}

  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    MemoryLog& log = *block->log;
    if (block->generation != log.generation_) return;
    log.allocations_[block->index].died = log.now();
    log.events_.push_back(block->index);
  }

 private:
  MemoryLog& log_;
};

MemoryLog& MemoryLog::instance() {
  static MemoryLog* const log = [] {
    auto* made = new MemoryLog();
    c10::SetAllocator(c10::DeviceType::Meta, new Allocator(*made), /*priority=*/100);
    return made;
  }();
  return *log;
}

void MemoryLog::start() {
  forget();
  writes_ = true;
}

void MemoryLog::stop() {
  forget();
  writes_ = false;
}

void MemoryLog::forget() {
  allocations_ = {};
  events_ = {};
  parts_ = {};
  ++generation_;
}

const std::string& MemoryLog::part_at(std::size_t event) const {
  static const std::string before_any;
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), event,
                                      [](std::size_t e, const Part& part) { return e < part.begin; });
  return after == parts_.begin() ? before_any : std::prev(after)->name;
}

std::size_t MemoryLog::find(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage()) return kNone;
  const auto& pointer = tensor.storage().data_ptr();
  if (pointer.get_deleter() != &Allocator::release) return kNone;
  const auto* block = static_cast<const Block*>(pointer.get_context());
  return block && block->generation == generation_ ? block->index : kNone;
}

}  // namespace titan::train
