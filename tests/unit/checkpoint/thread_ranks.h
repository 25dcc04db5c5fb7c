// Ranks that are threads of one process, for tests of collective code without a network.
#pragma once

#include <barrier>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/dcp/ranks.h"
#include "tests/support/memory_folder.h"
#include "tests/support/temporary_folder.h"

namespace titan::checkpoint {

class ThreadRanks : public Ranks {
 public:
  struct Shared {
    explicit Shared(int size) : gate(size), slots(static_cast<std::size_t>(size)) {}
    std::barrier<> gate;
    std::vector<std::string> slots;
  };
  ThreadRanks(int rank, Shared& shared) : rank_(rank), shared_(shared) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_.slots.size()); }
  std::vector<std::string> all_gather(const std::string& bytes) override {
    shared_.slots[static_cast<std::size_t>(rank_)] = bytes;
    shared_.gate.arrive_and_wait();
    auto all = shared_.slots;
    shared_.gate.arrive_and_wait();
    return all;
  }
  std::string broadcast(const std::string& bytes, int root) override {
    return all_gather(bytes)[static_cast<std::size_t>(root)];
  }

 private:
  int rank_;
  Shared& shared_;
};

// Runs `body` once per rank. Returns each rank's error message ("" if it did not throw).
inline std::vector<std::string> run_ranks(int size, const std::function<void(Ranks&)>& body) {
  ThreadRanks::Shared shared(size);
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadRanks ranks(rank, shared);
      try {
        body(ranks);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

// A folder in memory, because saves flush their files.
class TemporaryFolder : public test::TemporaryFolder {
 public:
  TemporaryFolder() : test::TemporaryFolder(test::memory_folder()) {}
};

}  // namespace titan::checkpoint
