#include "checkpoint/async_saver.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <future>
#include <string>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/unit/checkpoint/sharded_items.h"

namespace titan::checkpoint {
namespace {

std::vector<Item> items_of(const at::Tensor& live) {
  std::vector<Item> items = {shard("w", live, 0, 1), value("v", Value(std::int64_t{7}))};
  std::get<TensorItem>(items[0]).local = live;
  return items;
}

const at::Tensor& tensor_of(const std::vector<Item>& items) { return std::get<TensorItem>(items[0]).local; }

TEST(AsyncSaver, WritesWhatWasThereWhenItStarted) {
  AsyncSaver saver;
  auto live = at::ones({1000, 3});
  std::promise<void> go_on;
  at::Tensor written;
  saver.start(items_of(live), [&](const std::vector<Item>& items) {
    go_on.get_future().wait();
    written = tensor_of(items).clone();
  });
  saver.wait_staged();
  live.fill_(5);  // training continues
  EXPECT_TRUE(saver.is_running());
  saver.check();  // no error yet
  go_on.set_value();
  saver.wait();
  EXPECT_FALSE(saver.is_running());
  EXPECT_TRUE(written.equal(at::ones({1000, 3})));
}

TEST(AsyncSaver, OneSaveAtATimeIntoTheSameMemory) {
  AsyncSaver saver;
  auto live = at::zeros({64, 2});
  std::vector<const void*> memory;
  std::vector<float> values;
  for (int i = 0; i < 4; ++i) {
    saver.wait_staged();
    live.fill_(static_cast<double>(i));
    saver.start(items_of(live), [&](const std::vector<Item>& items) {
      memory.push_back(tensor_of(items).const_data_ptr());
      values.push_back(tensor_of(items)[0][0].item<float>());
    });
  }
  saver.wait();
  EXPECT_EQ(values, (std::vector<float>{0, 1, 2, 3}));
  for (const void* each : memory) EXPECT_EQ(each, memory[0]);
}

TEST(AsyncSaver, AFailureIsSaidOnceAndTheNextSaveWorks) {
  AsyncSaver saver;
  const auto live = at::zeros({2, 2});
  saver.start(items_of(live), [](const std::vector<Item>&) { throw CheckpointError("the disk is full"); });
  saver.wait_staged();
  while (saver.is_running()) std::this_thread::yield();
  EXPECT_EQ(test::message_of<CheckpointError>([&] { saver.check(); }), "the disk is full");
  saver.check();
  bool wrote = false;
  saver.start(items_of(live), [&](const std::vector<Item>&) { wrote = true; });
  saver.wait();
  EXPECT_TRUE(wrote);
}

TEST(AsyncSaver, EndsWithTheSaveUnderWay) {
  bool wrote = false;
  {
    AsyncSaver saver;
    saver.start(items_of(at::zeros({2, 2})), [&](const std::vector<Item>&) { wrote = true; });
  }
  EXPECT_TRUE(wrote);
}

}  // namespace
}  // namespace titan::checkpoint
