#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/format/value_pickle.h"
#include "tests/support/message_of.h"

namespace titan::checkpoint {
namespace {

std::string error_of(const std::string& pickle) {
  return test::message_of<CheckpointError>([&] { unpickle_value(pickle, "test.pkl", 100); });
}

std::string raw(std::initializer_list<int> codes) {
  std::string bytes;
  for (const int code : codes) bytes.push_back(static_cast<char>(code));
  return bytes;
}

Value everything() {
  return Value::dict({{"none", Value()},
                      {"flags", Value::tuple({true, false})},
                      {"ints", Value::list({0, 255, 256, 65535, 65536, -1, -70000, INT64_MAX, INT64_MIN})},
                      {"floats", Value::list({0.1, -0.0, 1e300})},
                      {"text", "h\xc3\xa9"},
                      {"text again", "h\xc3\xa9"},
                      {"bytes", Value::bytes(std::string("\x00\x7f\x80\xff", 4))},
                      {"no bytes", Value::bytes("")},
                      {"long bytes", Value::bytes(std::string(70000, '\xee'))},
                      {"empty", Value::list({Value::list({}), Value::tuple({}), Value::dict({})})},
                      {7, "a key that is a number"}});
}

TEST(Pickle, ValuesRoundTripInBothProtocols) {
  for (const int protocol : {2, 4})
    EXPECT_EQ(unpickle_value(pickle_value(everything(), protocol), "x"), everything()) << protocol;
}

TEST(Pickle, ManyStringsNeedLongMemoIndices) {
  std::vector<Value> names;
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 1000; ++i) names.emplace_back("name " + std::to_string(i));
  for (const int protocol : {2, 4}) {
    const std::string bytes = pickle_value(Value::list(names), protocol);
    EXPECT_EQ(unpickle_value(bytes, "x"), Value::list(names));
    EXPECT_LT(bytes.size(), 1000u * 25);  // 2,000 names without the memo take more than 26,000 bytes in either protocol
  }
}

TEST(Pickle, EveryCutFailsWithoutCrash) {
  for (const int protocol : {2, 4}) {
    const std::string whole = pickle_value(everything(), protocol);
    for (std::size_t size = 0; size < 2000 && size < whole.size(); ++size)
      EXPECT_NE(error_of(whole.substr(0, size)), "no error") << size;
  }
}

TEST(Pickle, FlippedBytesNeverCrash) {
  const std::string whole = pickle_value(everything(), 4);
  for (std::size_t at = 0; at < 700; ++at) {
    for (const int mask : {1, 0x10, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ mask);
      error_of(damaged);  // an error or another value; the sanitizers check the rest
    }
  }
}

TEST(Pickle, CodeIsRefusedByNameAndOffset) {
  // os.system("true") as pickle.dumps would spell it
  const std::string error =
      error_of(raw({0x80, 2}) + "cos\nsystem\n" + "X" + raw({4, 0, 0, 0}) + "true" + raw({0x85}) + "R.");
  EXPECT_NE(error.find("test.pkl"), std::string::npos) << error;
  EXPECT_NE(error.find("offset 102"), std::string::npos) << error;
  EXPECT_NE(error.find("os.system"), std::string::npos) << error;
}

TEST(Pickle, UnknownOpcodesAndMisuseAreErrors) {
  EXPECT_NE(error_of(raw({0x80, 2, 'i', '.'})).find("opcode 0x69"), std::string::npos);
  for (const std::string& body :
       {std::string("."), std::string("NN."), std::string("("), std::string("e."), std::string("Ne."),
        std::string("]u."), std::string("}(Nu."), std::string("h\x05."), std::string("(t(."), std::string("Nb."),
        std::string("NR."), std::string("N)R."), std::string("Q.")})
    EXPECT_NE(error_of(raw({0x80, 2}) + body), "no error") << body;
  EXPECT_NE(error_of(raw({0x80, 5}) + "N.").find("protocol 5"), std::string::npos);
  EXPECT_NE(error_of("N.N").find("follow the end"), std::string::npos);
}

TEST(Pickle, HugeLengthsAllocateNothing) {
  EXPECT_NE(error_of(raw({0x80, 4, 'X', 0xff, 0xff, 0xff, 0xff, '.'})), "no error");
  EXPECT_NE(error_of(raw({0x80, 4, 0x8d, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '.'})), "no error");
  EXPECT_NE(error_of(raw({0x80, 4, 'N', 'r', 0xff, 0xff, 0xff, 0xff, '.'})), "no error");
}

TEST(Pickle, ListsWithinThemselvesAndBombsEnd) {
  // l = []; l.append(l)
  EXPECT_NE(error_of(raw({0x80, 2, ']', 'q', 0, 'h', 0, 'a', '.'})).find("nested"), std::string::npos);
  // Each tuple holds the previous one twice: 2^60 values in 200 bytes.
  std::string bomb = raw({0x80, 4, 'N'});
  for (int i = 0; i < 60; ++i) bomb += raw({0x94, 'h', i, 0x86});
  EXPECT_NE(error_of(bomb + ".").find("too often"), std::string::npos);
}

}  // namespace
}  // namespace titan::checkpoint
