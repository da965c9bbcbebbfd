#include <algorithm>
#include <cstdio>
#include <numeric>

#include "src/index/formats.h"
#include <tessera/io/atomic_file.h>

namespace tessera::index {

void write_text(const std::string& path, const SparseVectors& vectors, const TokenNames& names) {
  io::AtomicFile file(path);
  Buffered out(file);
  for (std::int64_t r = 0; r < vectors.rows(); ++r) {
    const auto tokens = vectors.tokens_of(r);
    const auto weights = vectors.weights_of(r);
    std::vector<std::size_t> order(tokens.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
    std::string line = vectors.ids[r] + "\t";
    for (const std::size_t i : order) {
      char weight[32];
      std::snprintf(weight, sizeof(weight), ":%.4g", weights[i]);
      line += (line.back() == '\t' ? "" : " ") + names.name(tokens[i]) + weight;
    }
    out.write(line + "\n");
  }
  out.flush();
  file.commit();
}

}  // namespace tessera::index
