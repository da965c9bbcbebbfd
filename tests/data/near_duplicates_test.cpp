// Tests the search for near duplicates by embeddings.
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "src/data/packing/near_duplicates.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

const auto kSilent = [](const char*, std::int64_t, std::int64_t) {};

class NearDuplicates : public ::testing::Test {
 protected:
  std::string write(const at::Tensor& rows, const std::string& name = "rows.npy") {
    const at::Tensor values = rows.contiguous();
    std::string bytes = npy_header(values.scalar_type() == at::kHalf ? "<f2" : "<f4", values.sizes().vec());
    bytes.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
    io::write_file(folder_ / name, bytes);
    return folder_ / name;
  }
  Duplicates find(const at::Tensor& rows, const DuplicateSettings& settings) {
    return find_near_duplicates(StoredEmbeddings(write(rows), ""), settings, kSilent);
  }
  static std::set<std::int64_t> removed(const Duplicates& found) {
    std::set<std::int64_t> out;
    for (std::int64_t i = 0; i < found.of.numel(); ++i)
      if (found.of[i].item<std::int64_t>() >= 0) out.insert(i);
    return out;
  }
  TemporaryFolder folder_;
};

// With one cluster, all pairs are compared. The reference follows the paper's rule in float64.
TEST_F(NearDuplicates, OneClusterMatchesBruteForce) {
  at::manual_seed(1);
  const at::Tensor base = at::randn({150, 6});
  const at::Tensor rows = at::cat({base, base + 0.1 * at::randn_like(base), at::randn({4500 - 300, 6})});
  const at::Tensor unit = rows.to(at::kDouble) / rows.to(at::kDouble).norm(2, {1}, true), all = unit.mm(unit.t());
  for (const double threshold : {0.9, 0.999}) {
    const Duplicates found = find(rows, {.threshold = threshold, .clusters = 1, .keep = "first"});
    const at::Tensor before = all.tril(-1) + at::full_like(all, -2).triu(), expected = std::get<0>(before.max(1));
    EXPECT_TRUE(at::allclose(found.cosine.to(at::kDouble), expected, 0, 1e-5));
    const at::Tensor clear = (expected - threshold).abs() > 1e-5;
    EXPECT_TRUE(at::equal((found.of >= 0).logical_and(clear), (expected >= threshold).logical_and(clear)));
    for (const std::int64_t row : removed(found)) {
      const auto of = found.of[row].item<std::int64_t>();
      EXPECT_LT(of, row);
      EXPECT_GE(all[row][of].item<double>(), threshold - 1e-5);
    }
  }
}

TEST_F(NearDuplicates, ComparesOnlyRowsWithACommonCluster) {
  at::manual_seed(2);
  // Twenty directions that are far apart, each with 30 rows around it.
  const at::Tensor centers = std::get<0>(at::linalg_qr(at::randn({32, 20}))).t();
  const at::Tensor rows = (centers.unsqueeze(1) + 0.1 * at::randn({20, 30, 32})).reshape({600, 32});
  const Duplicates brute = find(rows, {.threshold = 0.8, .clusters = 1, .keep = "first"});
  const Duplicates clustered = find(rows, {.threshold = 0.8, .clusters = 20, .nearest = 1, .keep = "first"});
  const auto all = removed(brute), some = removed(clustered);
  EXPECT_GT(all.size(), 50U);
  for (const std::int64_t row : some) EXPECT_TRUE(all.contains(row));
  EXPECT_GT(static_cast<double>(some.size()), 0.7 * static_cast<double>(all.size()));
  const Duplicates more = find(rows, {.threshold = 0.8, .clusters = 20, .nearest = 4, .keep = "first"});
  EXPECT_GE(removed(more).size(), some.size());
  EXPECT_TRUE(at::equal(find(rows, {.threshold = 0.8, .clusters = 20, .nearest = 20, .keep = "first"}).of >= 0, brute.of >= 0));
}

TEST_F(NearDuplicates, KeepsTheRowThatTheSettingNames) {
  const at::Tensor rows = at::tensor({1.0, 0.3, 1.0, 0.0, 1.0, 0.1, 0.0, 1.0}, at::kFloat).view({4, 2});
  const auto kept = [&](const char* which, double threshold = 0.95) {
    std::set<std::int64_t> out{0, 1, 2, 3};
    for (const std::int64_t row : removed(find(rows, {.threshold = threshold, .clusters = 1, .keep = which}))) out.erase(row);
    return out;
  };
  // The center points between the rows, to the side of row 0.
  EXPECT_EQ(kept("first"), (std::set<std::int64_t>{0, 3}));
  EXPECT_EQ(kept("near"), (std::set<std::int64_t>{0, 3}));
  EXPECT_EQ(kept("far"), (std::set<std::int64_t>{1, 3}));
  EXPECT_EQ(kept("first", 0.9999), (std::set<std::int64_t>{0, 1, 2, 3}));
}

// As in the paper's program, c is removed because of b, although b is removed because of a, and a is not near c.
TEST_F(NearDuplicates, ARemovedRowStillRemovesOthers) {
  const double angle = 0.2;
  const at::Tensor angles = at::arange(3, at::kDouble) * angle, rows = at::stack({angles.cos(), angles.sin()}, 1).to(at::kFloat);
  const Duplicates found = find(rows, {.threshold = std::cos(angle) - 1e-4, .clusters = 1, .keep = "first"});
  EXPECT_EQ(removed(found), (std::set<std::int64_t>{1, 2}));
  EXPECT_EQ(found.of[2].item<std::int64_t>(), 1);
}

TEST_F(NearDuplicates, RowsThatAreZeroOrNotFiniteAreKept) {
  at::manual_seed(3);
  at::Tensor rows = at::randn({40, 4});
  rows[3].zero_();
  rows[4].zero_();
  rows[5].fill_(std::numeric_limits<float>::quiet_NaN());
  rows[6].fill_(std::numeric_limits<float>::infinity());
  rows[8].copy_(rows[7]);
  for (const std::int64_t clusters : {1, 5}) {
    const auto out = removed(find(rows, {.threshold = 0.9999, .clusters = clusters, .keep = "first"}));
    EXPECT_EQ(out, (std::set<std::int64_t>{8})) << clusters;
  }
}

TEST_F(NearDuplicates, SameSeedSameResultInHalfPrecisionToo) {
  at::manual_seed(4);
  const at::Tensor rows = at::randn({500, 8});
  const auto once = find(rows, {.threshold = 0.8}), again = find(rows, {.threshold = 0.8});
  EXPECT_TRUE(at::equal(once.of, again.of));
  const at::Tensor halves = rows.to(at::kHalf);
  const auto half = find(halves, {.threshold = 0.8}), same = find(halves.to(at::kFloat), {.threshold = 0.8});
  EXPECT_TRUE(at::equal(half.of, same.of));
  EXPECT_EQ(error_of([&] { find(rows, {.clusters = 501}); }), "--clusters 501: there are only 500 embeddings");
}

TEST_F(NearDuplicates, StoredEmbeddingsAreThoseOfTesseraEmbed) {
  at::manual_seed(5);
  const at::Tensor rows = at::randn({3, 4}), unit = rows / rows.norm(2, {1}, true);
  const std::string file = folder_ / "a.safetensors";
  io::save_safetensors(file, {{"image_embeddings", rows.to(at::kHalf)}, {"text_mask", at::ones({2}, at::kBool)}}, {{"images", "[\"x\", \"y\", \"z\"]"}});
  const StoredEmbeddings stored(file, "image_embeddings");
  EXPECT_EQ(stored.keys(), (std::vector<std::string>{"x", "y", "z"}));
  EXPECT_TRUE(at::allclose(stored.unit_rows(1, 2), unit.narrow(0, 1, 2), 1e-3, 1e-3));
  EXPECT_TRUE(at::equal(stored.unit_rows(at::tensor({2, 0}, at::kLong)), at::stack({stored.unit_rows(2, 1)[0], stored.unit_rows(0, 1)[0]})));
  EXPECT_TRUE(error_of([&] { StoredEmbeddings(file, "other"); }).ends_with("has no tensor other; it has image_embeddings and text_mask"))
      << error_of([&] { StoredEmbeddings(file, "other"); });
  EXPECT_TRUE(error_of([&] { StoredEmbeddings(file, "text_mask"); }).ends_with("the tensor text_mask is BOOL [2]; expected floats [N, D]"));
  io::write_file(folder_ / "rows.keys.txt", "a\nb\n");
  EXPECT_TRUE(error_of([&] { StoredEmbeddings(write(rows), ""); }).ends_with("has 3 image embeddings, but 2 keys: write it again with tessera-embed"));
  io::write_file(folder_ / "bad.npy", "no numbers");
  EXPECT_TRUE(error_of([&] { StoredEmbeddings(folder_ / "bad.npy", ""); }).find("bad.npy: ") != std::string::npos);
}

}  // namespace
}  // namespace tessera
