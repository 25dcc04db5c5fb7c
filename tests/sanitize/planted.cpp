// Makes one mistake: sanitize_planted race|race_in_hook|race_in_loop|use_after_free|leak. A sanitizer that stays
// silent, because of a suppression or an option, checks nothing.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <cstdio>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "kernels/cpu/parallel.h"

namespace {

int counter = 0;

void in_two_threads(void (*work)()) {
  std::thread other(work);
  work();
  other.join();
}

void count() {
  for (int i = 0; i < 1000; ++i) ++counter;
}

// Counts in a hook like FSDP's: called by torch's autograd engine, whose frames are below ours. Both threads are in
// their hooks at once; one after the other, the engine's locks would order them.
std::latch both_in_hook(2);
void count_in_hook() {
  auto x = at::ones({4}).requires_grad_();
  auto y = x * 2;
  y.register_hook([](const at::Tensor&) {
    both_in_hook.arrive_and_wait();
    count();
  });
  y.sum().backward();
}

// Adds up a loop that two threads divide: correctly, by a sum for each part, or all in one counter.
void count_in_loop(bool is_wrong) {
  at::set_num_threads(2);
  std::array<int, 2> sums = {};
  for (int repeat = 0; repeat < 100; ++repeat)
    titan::kernels::parallel_for(0, 2, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i) ++sums[is_wrong ? 0 : static_cast<std::size_t>(i)];
    });
  counter = sums[0] + sums[1];
}

int use_after_free() {
  auto value = std::make_unique<int>(7);
  const volatile int* dangling = value.get();
  value.reset();
  return *dangling;
}

void leak() {
  auto* volatile lost = new char[1000];
  std::fprintf(stderr, "leaves 1000 bytes at %p\n", static_cast<void*>(lost));
  lost = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mistake = argc == 2 ? argv[1] : "";
  if (mistake == "race") {
    in_two_threads(count);
  } else if (mistake == "race_in_hook") {
    in_two_threads(count_in_hook);
  } else if (mistake == "race_in_loop") {
    count_in_loop(true);
  } else if (mistake == "use_after_free") {
    std::fprintf(stderr, "%d\n", use_after_free());
  } else if (mistake == "leak") {
    leak();
  } else if (mistake == "none") {
    count_in_loop(false);
  } else {
    std::fprintf(stderr, "usage: sanitize_planted race|race_in_hook|race_in_loop|use_after_free|leak|none\n");
    return 2;
  }
  return 0;
}
