// Makes one mistake: sanitize_planted race|race_in_hook|use_after_free|leak. A sanitizer that stays silent, because of
// a suppression or an option, checks nothing.
#include <ATen/ATen.h>

#include <cstdio>
#include <latch>
#include <memory>
#include <string>
#include <thread>

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
  } else if (mistake == "use_after_free") {
    std::fprintf(stderr, "%d\n", use_after_free());
  } else if (mistake == "leak") {
    leak();
  } else if (mistake != "none") {
    std::fprintf(stderr, "usage: sanitize_planted race|race_in_hook|use_after_free|leak|none\n");
    return 2;
  }
  return 0;
}
