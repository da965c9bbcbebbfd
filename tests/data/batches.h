#pragma once
// Settings of loaders, and comparisons of their batches.

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/config/node.h>
#include <tessera/data/loading/loader.h>

namespace tessera {

inline LoaderSettings loader_settings(const std::string& yaml) {
  return config::read<LoaderSettings>(config::parse_yaml(yaml, "run.yaml"));
}

/// Whether two batches hold the same samples in the same order, with equal tensors.
inline bool same_batch(const Batch& a, const Batch& b) {
  std::vector<at::Tensor> ours, theirs;
  for_each_tensor(a, [&](const at::Tensor& tensor) { ours.push_back(tensor); });
  for_each_tensor(b, [&](const at::Tensor& tensor) { theirs.push_back(tensor); });
  return a.keys == b.keys &&
         std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), [](const at::Tensor& x, const at::Tensor& y) {
           return x.defined() == y.defined() && (!x.defined() || at::equal(x, y));
         });
}

/// Decodes text number `k` of a row. The view must hold several texts per row, encoded by ByteTokenizer.
inline std::string text_at(const TowerInput& view, std::int64_t row, std::int64_t k) {
  std::string out;
  for (std::int64_t i = 0; i < view.lengths[row][k].item<std::int64_t>(); ++i)
    out += static_cast<char>(view.ids[row][k][i].item<std::int64_t>());
  return out;
}

inline std::vector<std::string> texts_of(const TowerInput& view, std::int64_t row) {
  std::vector<std::string> out;
  for (std::int64_t k = 0; k < view.ids.size(1); ++k) out.push_back(text_at(view, row, k));
  return out;
}

/// Expects that a loader, after a seek to the position before batch i, returns batch i and its successors. Tests i = 0, `every`,
/// 2 * `every`, ... below `count`, and compares up to `length` batches each time. `make` returns a new loader with the given number of
/// threads.
template <class Make>
void expect_resumes(const Make& make, std::size_t count, std::size_t every, std::size_t length) {
  Loader whole = make(2);
  std::vector<DataPosition> positions;
  std::vector<std::int64_t> epochs;
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < count; ++i) {
    positions.push_back(whole.position());
    batches.push_back(whole.next());
    epochs.push_back(whole.epoch());
  }
  EXPECT_EQ(positions.front().epoch, 0);
  EXPECT_GE(positions.back().epoch, 1);
  for (std::size_t start = 0; start < count; start += every) {
    Loader resumed = make(3);
    if (start % 2 == 1) resumed.next();  // so that seek() is also called while workers run
    resumed.seek(positions[start]);
    EXPECT_EQ(resumed.epoch(), start == 0 ? 0 : epochs[start - 1]) << "the epoch of the batch before the position";
    for (std::size_t i = start; i < std::min(start + length, count); ++i) {
      EXPECT_EQ(resumed.position().epoch, positions[i].epoch);
      EXPECT_EQ(resumed.position().cursor, positions[i].cursor);
      EXPECT_TRUE(same_batch(resumed.next(), batches[i])) << "from " << start << " at " << i;
    }
  }
}

}  // namespace tessera
