// Tests which modules a policy groups: a function of the module tree alone.
#include "parallel/fsdp/wrap_policy.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/layers.h"

namespace titan::fsdp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 8 * 8 + 8 * 4 + 8 = 104 parameters.
class Block : public nn::Module {
 public:
  Block() {
    child("a", a_, std::make_shared<nn::Linear>(8, 8));
    child("b", b_, std::make_shared<nn::Linear>(8, 4));
    child("norm", norm_, std::make_shared<nn::RMSNorm>(8, 1e-5));
  }
  at::Tensor forward(const nn::Tensors& inputs) override { return (*norm_)((*a_)(inputs[0])) + (*b_)(inputs[0]).sum(); }

 private:
  std::shared_ptr<nn::Linear> a_, b_;
  std::shared_ptr<nn::RMSNorm> norm_;
};

class Silent : public nn::Module {  // has no parameters
 public:
  at::Tensor forward(const nn::Tensors& inputs) override { return inputs[0]; }
};

// Three blocks between an embedding and a head of 10 * 8 parameters each.
class Net : public nn::Module {
 public:
  explicit Net(bool tied = false) {
    child("embedding", embedding_, std::make_shared<nn::Embedding>(10, 8));
    child("blocks", blocks_, std::make_shared<nn::ModuleList>());
    for (int i = 0; i < 3; ++i) blocks_->append(std::make_shared<Block>());
    child("silent", silent_, std::make_shared<Silent>());
    child("head", head_, std::make_shared<nn::Linear>(8, 10));
    if (tied) tie("head.weight", "embedding.weight");
  }
  at::Tensor forward(const nn::Tensors& inputs) override { return inputs[0]; }

 private:
  std::shared_ptr<nn::Embedding> embedding_;
  std::shared_ptr<nn::ModuleList> blocks_;
  std::shared_ptr<Silent> silent_;
  std::shared_ptr<nn::Linear> head_;
};

// Returns "a", "b, c" for the groups.
std::vector<std::string> names_of(const std::vector<WrapGroup>& groups) {
  std::vector<std::string> names;
  for (const WrapGroup& group : groups) {
    EXPECT_EQ(group.modules.size(), group.names.size());
    std::string text;
    for (const std::string& name : group.names) text += (text.empty() ? "" : ", ") + name;
    names.push_back(text);
  }
  return names;
}

std::vector<std::string> by_size(std::int64_t size, bool tied = false) {
  Net net(tied);
  auto names = names_of(wrap_by_size(net, size));
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> by_name(const std::vector<std::string>& patterns, bool tied = false) {
  Net net(tied);
  return names_of(wrap_by_name(net, patterns));
}

std::string error_of(const std::vector<std::string>& patterns) {
  try {
    by_name(patterns);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(WrapBySize, TakesTheInnermostModuleThatIsLargeEnough) {
  EXPECT_THAT(by_size(1000), IsEmpty());
  EXPECT_THAT(by_size(105), IsEmpty());
  EXPECT_THAT(by_size(104), ElementsAre("blocks.0", "blocks.1", "blocks.2"));
  EXPECT_THAT(by_size(80), ElementsAre("blocks.0", "blocks.1", "blocks.2", "embedding", "head"));
  // a is a group, and what remains of its block, 40 parameters, is too small.
  EXPECT_THAT(by_size(64), ElementsAre("blocks.0.a", "blocks.1.a", "blocks.2.a", "embedding", "head"));
  EXPECT_THAT(by_size(40), ElementsAre("blocks.0", "blocks.0.a", "blocks.1", "blocks.1.a", "blocks.2", "blocks.2.a",
                                       "embedding", "head"));
  EXPECT_EQ(by_size(1).size(), 3 * 3 + 2);
}

TEST(WrapBySize, IsBottomUp) {
  Net net;
  std::vector<std::string> names = names_of(wrap_by_size(net, 40));
  for (int i = 0; i < 3; ++i) {
    const std::string block = "blocks." + std::to_string(i);
    EXPECT_LT(std::ranges::find(names, block + ".a"), std::ranges::find(names, block));
  }
}

TEST(WrapByName, TakesEachModuleThatMatches) {
  EXPECT_THAT(by_name({"head", "blocks.*"}), ElementsAre("head", "blocks.0", "blocks.1", "blocks.2"));
  EXPECT_THAT(by_name({"blocks.1.a", "blocks.*.a"}), ElementsAre("blocks.1.a", "blocks.0.a", "blocks.2.a"));
  // A * may be a part of a name, and never crosses a dot.
  EXPECT_THAT(by_name({"*d*"}), ElementsAre("embedding", "head"));
  EXPECT_THAT(by_name({"blocks.0.*m"}), ElementsAre("blocks.0.norm"));
  // An enclosing module comes after those inside it.
  EXPECT_THAT(by_name({"blocks.1", "blocks.1.*"}),
              ElementsAre("blocks.1.a", "blocks.1.b", "blocks.1.norm", "blocks.1"));
  EXPECT_THAT(by_name({"*e*"}), ElementsAre("embedding", "head"));  // also names silent, which has no parameters
}

TEST(WrapByName, RefusesWhatNamesNothing) {
  EXPECT_THAT(error_of({"block.*.a"}), AllOf(HasSubstr("\"block.*.a\" names no module"), HasSubstr("\"blocks.*.a\"?")));
  EXPECT_THAT(error_of({"blocks.7"}), HasSubstr("names no module"));
  EXPECT_THAT(error_of({"blocks.*.a.*"}), HasSubstr("names no module"));
  EXPECT_THAT(error_of({"xyzzy"}),
              HasSubstr("its modules: blocks.*, blocks.*.a, blocks.*.b, blocks.*.norm, embedding"));
  EXPECT_THAT(error_of({"blocks"}), HasSubstr("a list of modules, which is not called itself; use \"blocks.*\""));
  EXPECT_THAT(error_of({"silent"}), HasSubstr("only modules without parameters"));
}

TEST(WrapTied, ModulesOfOneParameterAreOneGroup) {
  EXPECT_THAT(by_name({"embedding", "head"}, true), ElementsAre("embedding, head"));
  EXPECT_THAT(by_name({"head"}, true), ElementsAre("embedding, head"));
  EXPECT_THAT(by_name({"blocks.0"}, true), ElementsAre("blocks.0"));  // both stay with the root
  EXPECT_THAT(by_size(80, true), ElementsAre("blocks.0", "blocks.1", "blocks.2", "embedding, head"));
}

// A group that has one slot is joined with the group that has the other one, also below a further group.
TEST(WrapTied, GroupsAreJoinedAndStayBottomUp) {
  Net net;
  net.tie("blocks.2.a.weight", "blocks.0.a.weight");
  EXPECT_THAT(names_of(wrap_by_name(net, {"blocks.0", "blocks.2.a", "blocks.2"})),
              ElementsAre("blocks.0, blocks.2.a", "blocks.2"));
  Net whole;
  whole.tie("blocks.2.a.weight", "blocks.0.a.weight");
  EXPECT_THAT(names_of(wrap_by_name(whole, {"blocks.0", "blocks.2"})), ElementsAre("blocks.0, blocks.2"));
}

}  // namespace
}  // namespace titan::fsdp
