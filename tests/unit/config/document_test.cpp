#include "config/toml/document.h"

#include <gmock/gmock.h>

#include "support.h"

namespace titan::config {
namespace {

Node value_of(const std::string& text) { return *parse_toml("x = " + text).find("x"); }

std::string found(const std::string& text) { return describe_found(value_of(text)); }

std::string wrong(const std::string& key, const std::string& text) {
  const Field& field = *find_field(key);
  const Node node = value_of(text);
  const auto value = to_field_value(field, node);
  return value ? "no error: " + to_toml_value(*value) : wrong_type(field, node);
}

TEST(Document, KeysComeInTheOrderOfTheFileWithTheirPlaces) {
  const Node root = parse_toml("z = 1\n[t]\nb = 2\na = [3]\n");
  ASSERT_EQ(root.members.size(), 2u);
  EXPECT_EQ(root.members[0].key, "z");
  const Node& table = root.members[1].value;
  EXPECT_EQ(table.members[0].key, "b");
  EXPECT_EQ(table.find("a")->at, (Position{4, 5}));
  EXPECT_EQ(table.find("c"), nullptr);
}

TEST(Document, SaysWhatItFound) {
  EXPECT_EQ(found("3"), "the integer 3");
  EXPECT_EQ(found("0.5"), "the number 0.5");
  EXPECT_EQ(found("'a'"), "the string \"a\"");
  EXPECT_EQ(found("true"), "true");
  EXPECT_EQ(found("2024-01-01"), "a date or time");
  EXPECT_EQ(found("{}"), "a table");
  EXPECT_EQ(found("['a']"), "a list");
  EXPECT_EQ(found("['a', 1]"), "a list with an integer in it");
  EXPECT_EQ(found("[1.5]"), "a list with a number in it");
  EXPECT_EQ(found("[['a']]"), "a list with other things than strings in it");
}

TEST(Document, AWrongTypeComesWithTheObviousFix) {
  EXPECT_EQ(wrong("training.steps", "'3'"),
            "training.steps: expected an integer, at least 1; found the string \"3\"; write 3");
  EXPECT_EQ(wrong("training.steps", "'many'"),
            "training.steps: expected an integer, at least 1; found the string \"many\"");
  EXPECT_EQ(wrong("job.print_config", "'True'"),
            "job.print_config: expected true or false; found the string \"True\"; write true");
  EXPECT_EQ(wrong("job.description", "3"), "job.description: expected a string; found the integer 3; write \"3\"");
  EXPECT_EQ(wrong("model.converters", "'a,b'"),
            "model.converters: expected a list of strings; found the string \"a,b\"; write [\"a\", \"b\"]");
}

TEST(Document, AnIntegerIsANumberAsFarAsADoubleHoldsIt) {
  EXPECT_EQ(wrong("optimizer.lr", "3"), "no error: 3.0");
  EXPECT_EQ(wrong("optimizer.lr", "9007199254740992"), "no error: 9007199254740992.0");
  EXPECT_EQ(wrong("optimizer.lr", "9007199254740993"),
            "optimizer.lr: expected a number, at least 0; found the integer 9007199254740993");
}

TEST(Document, NoneUnsetsAnOptionalKeyOnly) {
  EXPECT_EQ(wrong("debug.seed", "'None'"), "no error: None");
  EXPECT_EQ(wrong("training.steps", "'None'"),
            "training.steps: expected an integer, at least 1; found the string \"None\"");
}

TEST(Document, SomeListsMayBeOneString) {
  EXPECT_EQ(wrong("quantize.grouped_mm.mx.fqns", "'a,b'"), "no error: [\"a\", \"b\"]");
}

}  // namespace
}  // namespace titan::config
