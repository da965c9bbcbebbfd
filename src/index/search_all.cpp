#include <exception>

#include "kernels/parallel.h"
#include "src/index/search_all.h"

namespace tessera::index {

std::vector<Hits> search_all(const Index& index, const SparseVectors& queries, std::int64_t k, const Filter& filter,
                             int threads) {
  std::vector<Hits> hits(static_cast<std::size_t>(queries.rows()));
  std::vector<std::exception_ptr> errors(hits.size());
  kernels::for_each_item({threads}, queries.rows(), [&](int, std::int64_t q) {
    try {
      const QuantizedQuery query = quantize_query(queries.tokens_of(q), queries.weights_of(q), index.quantization());
      hits[q] = index.search(query, k, filter);
    } catch (...) {
      errors[q] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return hits;
}

}  // namespace tessera::index
