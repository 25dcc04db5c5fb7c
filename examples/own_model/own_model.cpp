// Trains a model of one's own, sharded over the ranks, and continues from its last checkpoint at any number of ranks:
//
//   own_model TEXT_FILE CHECKPOINTS STEPS
//   torchrun --no-python --nproc-per-node 2 own_model TEXT_FILE CHECKPOINTS STEPS
//
// The model predicts the next byte of a text from the eight before it.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <titan/titan.h>

#include <cstdio>
#include <fstream>
#include <iterator>

namespace {

using namespace titan;

constexpr std::int64_t kContext = 8, kDim = 64, kBatch = 64, kMicrobatches = 2;

class Block : public nn::Module {
 public:
  Block() {
    child("norm", norm_, std::make_shared<nn::RMSNorm>(kContext * kDim, 1e-5));
    child("up", up_, std::make_shared<nn::Linear>(kContext * kDim, 4 * kDim));
    child("down", down_, std::make_shared<nn::Linear>(4 * kDim, kContext * kDim));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    return inputs[0] + (*down_)(at::gelu((*up_)((*norm_)(inputs[0]))));
  }

 private:
  std::shared_ptr<nn::RMSNorm> norm_;
  std::shared_ptr<nn::Linear> up_, down_;
};

class ByteModel : public nn::Module {
 public:
  ByteModel() {  // on the meta device: no memory yet
    child("embedding", embedding_, std::make_shared<nn::Embedding>(256, kDim));
    child("blocks", blocks, std::make_shared<nn::ModuleList>());
    for (int i = 0; i < 4; ++i) blocks->append(std::make_shared<Block>());
    child("output", output_, std::make_shared<nn::Linear>(kContext * kDim, 256));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {  // bytes [B, context] -> logits [B, 256]
    at::Tensor x = (*embedding_)(inputs[0]).flatten(1);
    for (const auto& [name, block] : blocks->children()) x = (*block)(x);
    return (*output_)(x);
  }
  std::shared_ptr<nn::ModuleList> blocks;

 private:
  std::shared_ptr<nn::Embedding> embedding_;
  std::shared_ptr<nn::Linear> output_;
};

void init_weights(ByteModel& model) {
  const at::NoGradGuard no_grad;
  nn::CounterInitializer initializer(/*seed=*/0);  // the same values at every number of ranks
  for (const auto& parameter : model.named_parameters()) {
    if (parameter.tensor().dim() == 1)
      initializer.ones(parameter);
    else
      initializer.normal(parameter, 0.0, 0.05);
  }
}

// Returns this rank's rows of a microbatch, [rows, context + 1]. All ranks' rows together are the same at every number
// of ranks.
at::Tensor next_rows(const at::Tensor& text, std::int64_t index, const World& world) {
  const auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(index));
  const auto first = at::randint(text.size(0) - kContext, {kBatch, 1}, generator, at::kLong);
  const auto own = first.tensor_split(world.size())[world.rank()];
  return text.index({own + at::arange(kContext + 1)}).to(world.device(), at::kLong);
}

// Returns this rank's term of the loss, which is the mean over the rows of all ranks and microbatches.
at::Tensor loss_of(ByteModel& model, const at::Tensor& rows) {
  const auto logits = model(rows.narrow(1, 0, kContext));  // not model.forward(): the hooks gather the parameters
  return at::cross_entropy_loss(logits.to(at::kFloat), rows.select(1, kContext), {}, at::Reduction::Sum) /
         (kBatch * kMicrobatches);
}

void train(World& world, const at::Tensor& text, const std::string& folder, int num_steps) {
  const auto mesh = DeviceMesh::init(world, {world.size()}, {"fsdp"});
  ByteModel model;
  const fsdp::FullyShardOptions options{.mesh = mesh, .mp_policy = {at::kBFloat16, at::kFloat}};
  for (const auto& [name, block] : model.blocks->children()) fully_shard(*block, options);  // bottom-up,
  fully_shard(model, options);                                                              // the root last
  fsdp::set_gradient_divide_factor(model, 1.0);  // gradients are sums, as the ranks' terms of the loss are
  fsdp::to_empty(model, world.device());
  init_weights(model);
  optim::AdamW optimizer(trained_parameters(model), {.lr = 2e-3});  // on the shards, so after fully_shard

  int step = 0;
  if (const auto saved = checkpoint::steps_in(folder); !saved.empty()) {
    step = saved.back();
    checkpoint::load(checkpoint::step_folder(folder, step), state_items(model, optimizer), world.group());
  }
  for (; step < num_steps; ++step) {
    at::Tensor loss = at::zeros({}, world.device());
    for (std::int64_t m = 0; m < kMicrobatches; ++m) {
      fsdp::set_requires_gradient_sync(model, m + 1 == kMicrobatches);  // gradients are reduced once per step
      const auto term = loss_of(model, next_rows(text, step * kMicrobatches + m, world));
      term.backward();
      loss += term.detach();
    }
    const auto norm = clip_grad_norm(optimizer.sharded_grads(), /*max_norm=*/1.0);
    optimizer.step();
    optimizer.zero_grad();
    world.group().all_reduce(loss, dist::ReduceOp::kSum).wait();
    if (world.rank() == 0)
      std::printf("step %d  loss %.4f  grad_norm %.4f\n", step + 1, loss.item<float>(), norm.item<float>());
  }
  checkpoint::save(checkpoint::step_folder(folder, step), state_items(model, optimizer), world.group());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: %s TEXT_FILE CHECKPOINTS STEPS\n", argv[0]), 2;
  return run_rank([&](World& world) {
    std::ifstream file(argv[1], std::ios::binary);
    std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    if (bytes.size() <= kContext) throw DataError(std::string(argv[1]) + " has no text to train on");
    const auto text = at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte);
    train(world, text, argv[2], std::stoi(argv[3]));
  });
}
