// RMSNorm (also of a sum), rotary embedding and SwiGLU as a GPU computes them. Teams of lanes handle rows, each lane
// every kLanes-th pack of 16 bytes; single lanes handle elements. A team is a block of threads on a device
// (kernels/cuda/launch_fused_rows.cu) and a loop on the host (host_team.h). Both compile this code, with the same order
// of each sum, and tests on the host compare it with the formula.
//
// T is float or BFloat16Bits; sums and products are float32. Results are rounded at the same points as in
// kernels/cpu/rows/fused_rows.h. Pointers are aligned to 16 bytes, and the size of a row is a multiple of a pack.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/portable/divisor.h"
#include "kernels/portable/half_bits.h"

#ifdef __CUDACC__
#define TITAN_LANES __host__ __device__ inline
#else
#define TITAN_LANES inline
#endif

namespace titan::device {

using kernels::BFloat16Bits;
using kernels::Divisor;

constexpr int kLanes = 256;

template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T values[kSize];
};

TITAN_LANES float to_float(float x) { return x; }
TITAN_LANES float to_float(BFloat16Bits x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16;
  float out;
  memcpy(&out, &bits, sizeof(out));
  return out;
}

// Rounds to nearest, ties to even, as c10::BFloat16 does.
template <typename T>
TITAN_LANES T rounded(float x);
template <>
TITAN_LANES float rounded<float>(float x) {
  return x;
}
template <>
TITAN_LANES BFloat16Bits rounded<BFloat16Bits>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  BFloat16Bits out;  // the instruction rounds as below; its NaN is 0x7FFF
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
  return out;
#else
  if (x != x) return {0x7FC0};
  std::uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
#endif
}

// Returns x rounded to T, as a float. The instruction converts two numbers to the halves of a word: with 0 in the lower
// half, the word is the float. The one that converts a single number belongs to a slower unit.
template <typename T>
TITAN_LANES float through(float x) {
  return to_float(rounded<T>(x));
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <>
TITAN_LANES float through<BFloat16Bits>(float x) {
  std::uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0F));
  float out;
  memcpy(&out, &bits, sizeof(out));
  return out;
}
#endif

template <typename T>
TITAN_LANES const Pack<T>& pack(const T* values, std::int64_t index) {
  return reinterpret_cast<const Pack<T>*>(values)[index];
}
template <typename T>
TITAN_LANES Pack<T>& pack(T* values, std::int64_t index) {
  return reinterpret_cast<Pack<T>*>(values)[index];
}

// Calls body(index of a pack) for the packs of a lane.
template <typename T, typename Body>
TITAN_LANES void for_packs_of(int lane, std::int64_t dim, const Body& body) {
  for (std::int64_t i = lane; i < dim / Pack<T>::kSize; i += kLanes) body(i);
}

// ------------------------------------------------------------------------------------------------------ RMSNorm
// A team has
//   each(f)   calls f(lane) for every lane
//   wait()    is a barrier: lanes see what all lanes have written before it
//   sum(f)    returns the sum of f(lane) over the lanes to every lane, and is a barrier. Adds lanes 16, 8, 4, 2 and 1
//             apart in groups of 32, then the groups' sums 4, 2 and 1 apart.

// Normalizes one row of `dim` elements. With `delta`, normalizes x + delta, rounded, which is written to `sum`.
template <typename T, typename Team>
TITAN_LANES void rms_norm_row(const Team& team, std::int64_t dim, float eps, const T* x, const T* delta,
                              const T* weight, T* sum, T* out, float* rrms) {
  if (delta) {
    team.each([=](int lane) {
      for_packs_of<T>(lane, dim, [=](std::int64_t i) {
        const Pack<T> a = pack(x, i), b = pack(delta, i);
        Pack<T> s;
        for (int v = 0; v < Pack<T>::kSize; ++v)
          s.values[v] = rounded<T>(to_float(a.values[v]) + to_float(b.values[v]));
        pack(sum, i) = s;
      });
    });
  }
  const T* const row = delta ? sum : x;  // each lane reads only what it has written itself
  const float squares = team.sum([=](int lane) {
    float of_lane = 0;
    for_packs_of<T>(lane, dim, [&](std::int64_t i) {
      const Pack<T> r = pack(row, i);
      for (int v = 0; v < Pack<T>::kSize; ++v) of_lane += to_float(r.values[v]) * to_float(r.values[v]);
    });
    return of_lane;
  });
  const float scale = 1.0F / std::sqrt(squares / static_cast<float>(dim) + eps);
  team.each([=](int lane) {
    if (lane == 0) *rrms = scale;
    for_packs_of<T>(lane, dim, [=](std::int64_t i) {
      const Pack<T> r = pack(row, i), w = pack(weight, i);
      Pack<T> o;
      for (int v = 0; v < Pack<T>::kSize; ++v)
        o.values[v] = rounded<T>(to_float(r.values[v]) * scale * to_float(w.values[v]));
      pack(out, i) = o;
    });
  });
}

// Returns the slot of an element in a team's sums of columns: the first elements of all packs, then the second ones,
// and so on, so that adjacent lanes read and write adjacent memory.
template <typename T>
TITAN_LANES std::int64_t slot_of(std::int64_t index_of_pack, int element, std::int64_t dim) {
  return element * (dim / Pack<T>::kSize) + index_of_pack;
}

// Computes the gradients of one row: of x, and of the weight, which is added to `columns` [dim]. `more`, if not null,
// is another gradient of x, added to the rounded one.
template <typename T, typename Team>
TITAN_LANES void rms_norm_backward_row(const Team& team, std::int64_t dim, const T* out_grad, const T* more, const T* x,
                                       const T* weight, float rrms, T* x_grad, float* columns) {
  const float dot = team.sum([=](int lane) {
    float of_lane = 0;
    for_packs_of<T>(lane, dim, [&](std::int64_t i) {
      const Pack<T> g = pack(out_grad, i), r = pack(x, i), w = pack(weight, i);
      for (int v = 0; v < Pack<T>::kSize; ++v)
        of_lane += to_float(g.values[v]) * to_float(w.values[v]) * to_float(r.values[v]);
    });
    return of_lane;
  });
  const float along_x = dot / static_cast<float>(dim) * rrms * rrms;
  team.each([=](int lane) {
    for_packs_of<T>(lane, dim, [=](std::int64_t i) {
      const Pack<T> g = pack(out_grad, i), r = pack(x, i), w = pack(weight, i);
      Pack<T> o;
      for (int v = 0; v < Pack<T>::kSize; ++v) {
        const float of_out = to_float(g.values[v]), of_x = to_float(r.values[v]);
        o.values[v] = rounded<T>(rrms * (of_out * to_float(w.values[v]) - of_x * along_x));
        columns[slot_of<T>(i, v, dim)] += of_out * of_x * rrms;
      }
      if (more) {
        const Pack<T> m = pack(more, i);
        for (int v = 0; v < Pack<T>::kSize; ++v)
          o.values[v] = rounded<T>(to_float(o.values[v]) + to_float(m.values[v]));
      }
      pack(x_grad, i) = o;
    });
  });
}

// The weight's gradient adds the sums of all teams. One team of lanes adds kSlotsOfBlock adjacent slots: its lanes are
// kStrips strips of kPacksOfStrip packs, so that many lanes read the teams of a column at once.
constexpr int kStrips = 32, kPacksOfStrip = kLanes / kStrips, kSlotsOfBlock = kPacksOfStrip * Pack<float>::kSize;

TITAN_LANES std::int64_t blocks_of_slots(std::int64_t dim) { return (dim + kSlotsOfBlock - 1) / kSlotsOfBlock; }

// Returns the sum of pack `index` of `columns` [teams, packs] over teams first, first + kStrips, ..., one after the
// other.
TITAN_LANES Pack<float> sum_of_strip(const float* columns, std::int64_t teams, std::int64_t packs, std::int64_t index,
                                     int first) {
  Pack<float> sum = {};
  const Pack<float>* from = &pack(columns, first * packs + index);
  for (std::int64_t team = first; team < teams; team += kStrips) {
    const Pack<float> of_team = *from;
    for (int v = 0; v < Pack<float>::kSize; ++v) sum.values[v] += of_team.values[v];
    from += kStrips * packs;
  }
  return sum;
}

// Writes the weight's gradient at the slots of one block: each is the sum of `teams` values of `columns` [teams, dim].
// Each strip adds its teams, then strips 16, 8, 4, 2 and 1 apart are added: a sum of 512 teams is rounded 15 + 5 times.
// `strips` [kLanes] is memory of the team; its contents do not matter.
template <typename T, typename Team>
TITAN_LANES void sum_teams(const Team& team, const float* columns, std::int64_t teams, std::int64_t dim,
                           std::int64_t block, Pack<float>* strips, T* weight_grad) {
  constexpr int kSize = Pack<float>::kSize;
  const std::int64_t packs = dim / kSize, first = block * kPacksOfStrip;
  team.each([=](int lane) {
    const std::int64_t index = first + lane % kPacksOfStrip;
    if (index < packs) strips[lane] = sum_of_strip(columns, teams, packs, index, lane / kPacksOfStrip);
  });
  for (int apart = kLanes / 2; apart >= kPacksOfStrip; apart /= 2) {
    team.wait();
    team.each([=](int lane) {
      if (lane >= apart || first + lane % kPacksOfStrip >= packs) return;
      Pack<float> sum = strips[lane];
      const Pack<float> other = strips[lane + apart];
      for (int v = 0; v < kSize; ++v) sum.values[v] += other.values[v];
      strips[lane] = sum;
    });
  }
  team.each([=](int lane) {  // each lane reads only what it has written itself
    if (lane >= kPacksOfStrip || first + lane >= packs) return;
    const auto packs_of_weight = static_cast<unsigned>(dim) / Pack<T>::kSize;
    for (int v = 0; v < kSize; ++v) {
      const auto slot = static_cast<unsigned>(first + lane) * kSize + v;
      weight_grad[slot % packs_of_weight * Pack<T>::kSize + slot / packs_of_weight] =
          rounded<T>(strips[lane].values[v]);
    }
  });
}

// ---------------------------------------------------------------------------------------------- rotary embedding

// x [B, T, H, E] with these strides, in elements; the last dim is contiguous. The output is contiguous.
struct Rotation {
  std::int64_t batch, tokens, heads, head_dim;
  std::int64_t batch_stride, token_stride, head_stride;
};

// Calls body(part, x, factors, out) for parts of at most `most` packs, which together are the rotation: some rows, or
// some tokens of one row. A token has at most `most` packs.
template <typename T, typename Body>
void for_parts_of(const Rotation& shape, const T* x, const float* factors, T* out, const Body& body,
                  std::int64_t most = Divisor::kMost) {
  const std::int64_t of_token = shape.heads * shape.head_dim, most_tokens = most * Pack<T>::kSize / of_token;
  const std::int64_t tokens = std::min(shape.tokens, most_tokens);
  const std::int64_t rows = std::max(most_tokens / shape.tokens, std::int64_t{1});
  for (std::int64_t row = 0; row < shape.batch; row += rows)
    for (std::int64_t token = 0; token < shape.tokens; token += tokens) {
      Rotation part = shape;
      part.batch = std::min(rows, shape.batch - row);
      part.tokens = std::min(tokens, shape.tokens - token);
      body(part, x + row * shape.batch_stride + token * shape.token_stride, factors + token * shape.head_dim,
           out + (row * shape.tokens + token) * of_token);
    }
}

// Says where the packs are that lanes compute: all of them, or those of the heads' first halves. `packs` divides
// by their number per head. `count` is at most Divisor::kMost.
struct Places {
  Divisor packs, heads, tokens;
  std::uint32_t count;
};
struct Place {
  std::uint32_t pack, head, token, row;
  std::uint32_t head_of_all;  // heads before this one in the output
};

template <typename T>
Places places_of(const Rotation& shape, std::int64_t elements_of_head) {
  const auto narrow = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
  const std::int64_t packs = elements_of_head / Pack<T>::kSize;
  return {Divisor(narrow(packs)), Divisor(narrow(shape.heads)), Divisor(narrow(shape.tokens)),
          narrow(shape.batch * shape.tokens * shape.heads * packs)};
}
template <typename T>
Places places_of_all(const Rotation& shape) {
  return places_of<T>(shape, shape.head_dim);
}
template <typename T>
Places places_of_halves(const Rotation& shape) {
  return places_of<T>(shape, shape.head_dim / 2);
}

TITAN_LANES Place place_of(const Places& places, std::uint32_t index) {
  const std::uint32_t head = places.packs.quotient(index), token = places.heads.quotient(head);
  const std::uint32_t row = places.tokens.quotient(token);
  return {places.packs.remainder(index, head), places.heads.remainder(head, token), places.tokens.remainder(token, row),
          row, head};
}

// Returns the start of a head of x.
template <typename T>
TITAN_LANES const T* head_at(const Rotation& shape, const Place& at, const T* x) {
  return x + at.row * shape.batch_stride + at.token * shape.token_stride + at.head * shape.head_stride;
}

// Computes the index-th pack of the output: pairs of adjacent elements, as complex numbers, times complex `factors` [>=
// T, E / 2], or times their conjugates. `places` are places_of_all().
template <typename T>
TITAN_LANES void rotate_pack(const Rotation& shape, const Places& places, std::uint32_t index, const T* x,
                             const float* factors, bool conjugate, T* out) {
  const Place at = place_of(places, index);
  const float* const by = factors + at.token * shape.head_dim + at.pack * Pack<T>::kSize;
  const Pack<T> p = pack(head_at(shape, at, x), at.pack);
  Pack<T> o;
  for (int v = 0; v < Pack<T>::kSize; v += 2) {
    const float re = to_float(p.values[v]), im = to_float(p.values[v + 1]);
    const float cos = by[v], sin = conjugate ? -by[v + 1] : by[v + 1];
    o.values[v] = rounded<T>(re * cos - im * sin);
    o.values[v + 1] = rounded<T>(re * sin + im * cos);
  }
  pack(out, index) = o;
}

// Rotates pack `index` of the heads' first halves with the same pack of their second halves. head_dim is a multiple of
// two packs, and `places` are places_of_halves(). Factors, products and sums are rounded to T.
template <typename T>
TITAN_LANES void rotate_halves_pack(const Rotation& shape, const Places& places, std::uint32_t index, const T* x,
                                    const float* factors, bool conjugate, T* out) {
  const Place at = place_of(places, index);
  const std::int64_t packs_of_half = shape.head_dim / Pack<T>::kSize / 2;
  const T* const from = head_at(shape, at, x);
  const float* const by = factors + at.token * shape.head_dim + at.pack * Pack<T>::kSize * 2;
  const Pack<T> first = pack(from, at.pack), second = pack(from, at.pack + packs_of_half);
  Pack<T> a, b;
  for (int v = 0; v < Pack<T>::kSize; ++v) {
    const float one = to_float(first.values[v]), other = to_float(second.values[v]);
    const float cos = through<T>(by[2 * v]);
    const float sin = through<T>(conjugate ? -by[2 * v + 1] : by[2 * v + 1]);
    a.values[v] = rounded<T>(through<T>(one * cos) - through<T>(other * sin));
    b.values[v] = rounded<T>(through<T>(other * cos) + through<T>(one * sin));
  }
  const std::int64_t to = at.head_of_all * packs_of_half * 2 + at.pack;
  pack(out, to) = a;
  pack(out, to + packs_of_half) = b;
}

// -------------------------------------------------------------------------------------------------------- SwiGLU

TITAN_LANES float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

template <typename T>
TITAN_LANES void swiglu_pack(std::int64_t index, const T* gate, const T* up, T* out) {
  const Pack<T> g = pack(gate, index), u = pack(up, index);
  Pack<T> o;
  for (int v = 0; v < Pack<T>::kSize; ++v) {
    const float x = to_float(g.values[v]);
    o.values[v] = rounded<T>(through<T>(x * sigmoid(x)) * to_float(u.values[v]));
  }
  pack(out, index) = o;
}

template <typename T>
TITAN_LANES void swiglu_backward_pack(std::int64_t index, const T* out_grad, const T* gate, const T* up, T* gate_grad,
                                      T* up_grad) {
  const Pack<T> d = pack(out_grad, index), g = pack(gate, index), u = pack(up, index);
  Pack<T> of_gate, of_up;
  for (int v = 0; v < Pack<T>::kSize; ++v) {
    const float x = to_float(g.values[v]), s = sigmoid(x), of_out = to_float(d.values[v]);
    of_up.values[v] = rounded<T>(of_out * through<T>(x * s));
    const float of_silu = through<T>(of_out * to_float(u.values[v]));
    of_gate.values[v] = rounded<T>(of_silu * (s * (1.0F + x * (1.0F - s))));
  }
  pack(gate_grad, index) = of_gate;
  pack(up_grad, index) = of_up;
}

}  // namespace titan::device
