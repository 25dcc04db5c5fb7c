#include "base/value.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace titan {
namespace {

TEST(Value, IntsComeBack) {
  const Value numbers = Value::ints({3, -1, std::int64_t{1} << 40});
  EXPECT_EQ(numbers, Value::list({3, -1, std::int64_t{1} << 40}));
  EXPECT_EQ(numbers.as_ints("x"), (std::vector<std::int64_t>{3, -1, std::int64_t{1} << 40}));
  EXPECT_EQ(Value::tuple({1, 2}).as_ints("x"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(test::message_of<CheckpointError>([] {
              Value::list({1, 0.5}).as_ints("x");
            }),
            "x is a Python float, expected int");
  EXPECT_EQ(test::message_of<CheckpointError>([] { Value(1).as_ints("x"); }),
            "x is a Python int, expected list or tuple");
}

TEST(Value, SaysWhatIsNotThere) {
  const Value dict = Value::dict({{"a", 1}});
  EXPECT_EQ(dict.as_dict("x").at("a", "x"), Value(1));
  EXPECT_EQ(test::message_of<CheckpointError>([&] { dict.as_dict("x").at("b", "x"); }), "x has no entry b");
  const Values values = {{"a", 1}};
  EXPECT_EQ(value_at(values, "a"), Value(1));
  EXPECT_EQ(test::message_of<CheckpointError>([&] { value_at(values, "b"); }), "the checkpoint state has no b");
}

}  // namespace
}  // namespace titan
