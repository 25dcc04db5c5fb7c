// Tests the placement of gathered outputs: ranks agree by their calls alone, and places are reused at the right time.
#include "distributed/shared_memory/place_book.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <utility>

#include "base/error.h"

namespace titan {
namespace {

using dist::PlaceBook;

constexpr std::size_t kPage = PlaceBook::kPage;

TEST(PlaceBook, TakesAPlaceAgainOnceAnotherWasTaken) {
  PlaceBook book(100, 100 * kPage, 8);
  const auto first = book.take(3 * kPage - 5);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->offset, kPage);
  EXPECT_EQ(first->generation, 1);
  book.give_back(first->number);
  // The other ranks may still read the first.
  const auto second = book.take(3 * kPage);
  EXPECT_EQ(second->offset, 4 * kPage);
  book.give_back(second->number);
  const auto third = book.take(2 * kPage);
  EXPECT_EQ(third->number, first->number);
  EXPECT_EQ(third->generation, 2);
  EXPECT_EQ(book.bytes(), 6 * kPage);
}

TEST(PlaceBook, AsksForNothingNewInASteadyLoop) {
  PlaceBook book(0, 1000 * kPage, 100);
  // Gathers layers as training does: the next one before the previous one is given back.
  const auto step = [&] {
    int last = book.take(7 * kPage)->number;
    for (int layer = 0; layer < 10; ++layer) {
      const int next = book.take(20 * kPage)->number;
      book.give_back(last);
      last = next;
    }
    book.give_back(last);
  };
  step();
  step();
  const auto bytes = book.bytes();
  EXPECT_LE(bytes, (2 * 7 + 3 * 20) * kPage);
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(book.bytes(), bytes);
}

TEST(PlaceBook, TakesARestlessPlaceBeforeItGivesUp) {
  PlaceBook book(0, 10 * kPage, 8);
  const auto only = book.take(6 * kPage);
  for (const std::size_t bytes : {6 * kPage, 11 * kPage, static_cast<std::size_t>(-1)}) {
    EXPECT_FALSE(book.has_place_for(bytes));
    EXPECT_FALSE(book.take(bytes));
  }
  book.give_back(only->number);
  EXPECT_TRUE(book.has_place_for(6 * kPage));
  EXPECT_EQ(book.take(6 * kPage)->number, only->number);
  PlaceBook two(0, 100 * kPage, 2);
  EXPECT_TRUE(two.take(1) && two.take(1));
  EXPECT_FALSE(two.take(1));
}

TEST(PlaceBook, LeavesALargePlaceToWhoNeedsIt) {
  PlaceBook book(0, 1000 * kPage, 8);
  const int large = book.take(100 * kPage)->number;
  const int medium = book.take(40 * kPage)->number;
  book.give_back(large);
  book.give_back(medium);
  EXPECT_NE(book.take(1)->number, large);
  EXPECT_EQ(book.take(30 * kPage)->number, medium);  // the smallest that fits
  EXPECT_EQ(book.take(50 * kPage)->number, large);
}

TEST(PlaceBook, ChoosesByTheCallsAloneAndNeverTwiceAtOnce) {
  PlaceBook one(0, 1 << 20, 64), other(0, 1 << 20, 64);
  std::mt19937 random(1);
  std::map<std::size_t, std::pair<std::size_t, int>> taken;  // offset -> end, number
  for (int i = 0; i < 20000; ++i) {
    const std::size_t bytes = random() % (1 << 16);
    if (random() % 2) {
      const bool has_place = one.has_place_for(bytes);
      const auto place = one.take(bytes), same = other.take(bytes);
      ASSERT_EQ(place.has_value(), has_place);
      ASSERT_EQ(place.has_value(), same.has_value());
      if (!place) continue;
      ASSERT_EQ(place->offset, same->offset);
      ASSERT_EQ(place->generation, same->generation);
      const auto next = taken.lower_bound(place->offset);
      ASSERT_TRUE(next == taken.end() || place->offset + bytes <= next->first);
      ASSERT_TRUE(next == taken.begin() || std::prev(next)->second.first <= place->offset);
      taken[place->offset] = {place->offset + bytes, place->number};
    } else if (!taken.empty()) {
      const auto chosen = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      one.give_back(chosen->second.second);
      other.give_back(chosen->second.second);
      taken.erase(chosen);
    }
  }
}

TEST(PlaceBook, IsGivenAPlaceBackOnce) {
  PlaceBook book(0, 10 * kPage, 8);
  const int number = book.take(1)->number;
  book.give_back(number);
  EXPECT_THROW(book.give_back(number), InternalError);
}

}  // namespace
}  // namespace titan
