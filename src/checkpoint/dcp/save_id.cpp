#include "checkpoint/dcp/save_id.h"

#include <random>

namespace titan::checkpoint {

std::string new_save_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) id.push_back('-');
    unsigned digit = random() & 15;
    if (i == 12) digit = 4;
    if (i == 16) digit = 8 | (digit & 3);
    id.push_back("0123456789abcdef"[digit]);
  }
  return id;
}

}  // namespace titan::checkpoint
