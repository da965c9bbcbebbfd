#include <ATen/ATen.h>

#include "src/models/token_multi_hot.h"

namespace tessera {
namespace {

bool all_in(const at::Tensor& ids, std::int64_t vocab_size) {
  return ids.ge(0).logical_and_(ids.lt(vocab_size)).all().item<bool>();
}

}  // namespace

at::Tensor token_multi_hot(const at::Tensor& ids, const at::Tensor& mask, std::int64_t vocab_size,
                           const at::Tensor& special_ids) {
  TORCH_CHECK(ids.dim() == 2 && ids.scalar_type() == at::kLong, "token_multi_hot: ids must be [B, L] int64, got ",
              ids.sizes(), " ", ids.scalar_type());
  TORCH_CHECK(!mask.defined() || (mask.sizes() == ids.sizes() && mask.scalar_type() == at::kBool),
              "token_multi_hot: mask must be [B, L] = ", ids.sizes(), " bool, got ", mask.sizes(), " ",
              mask.scalar_type());
  TORCH_CHECK(!ids.is_cpu() || all_in(mask.defined() ? ids.masked_fill(~mask, 0) : ids, vocab_size),
              "token_multi_hot: an id is not in the vocabulary 0..", vocab_size - 1);
  // Marks padding in an extra column, which the result leaves out.
  const at::Tensor places = mask.defined() ? ids.masked_fill(~mask, vocab_size) : ids;
  const at::Tensor contained = at::zeros({ids.size(0), vocab_size + 1}, ids.options().dtype(at::kBool));
  contained.scatter_(1, places, true);
  if (special_ids.defined()) {  // ids outside the vocabulary have no column
    const at::Tensor outside = special_ids.lt(0).logical_or_(special_ids.ge(vocab_size));
    contained.index_fill_(1, special_ids.masked_fill(outside, vocab_size), false);
  }
  return contained.narrow(1, 0, vocab_size);
}

}  // namespace tessera
