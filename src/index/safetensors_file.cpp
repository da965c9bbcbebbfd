#include <cstring>
#include <limits>

#include <ATen/ATen.h>

#include "src/index/formats.h"
#include <tessera/base/error.h>
#include <tessera/io/safetensors.h>

namespace tessera::index {
namespace {

bool holds_dense_embeddings(const io::TensorFile& file) {
  return file.tensors.contains("image_embeddings") || file.tensors.contains("text_embeddings");
}

at::Tensor tensor_of(const io::TensorFile& file, const char* name, at::ScalarType dtype, const std::string& path) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end())
    user_error(path, ": has no tensor ", name, "; expected indptr, indices, values and shape of sparse vectors",
               holds_dense_embeddings(file) ? "; it looks like dense embeddings of tessera-embed --out: use its --sparse "
                                              "to write vectors for an index"
                                            : "");
  if (found->second.scalar_type() != dtype || found->second.dim() != 1)
    user_error(path, ": tensor ", name, " is not a list of ", at::toString(dtype), " numbers");
  return found->second.contiguous();
}

template <class T>
std::vector<T> values_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), tensor.const_data_ptr<T>() + tensor.numel()};
}

template <class T>
at::Tensor view_of(const std::vector<T>& values, at::ScalarType dtype) {
  return at::from_blob(const_cast<T*>(values.data()), {static_cast<std::int64_t>(values.size())}, dtype);
}

}  // namespace

SparseVectors read_safetensors(const std::string& path, const SparseFileOptions&) {
  const io::TensorFile file = io::load_safetensors(path);
  const auto shape = values_of<std::int64_t>(tensor_of(file, "shape", at::kLong, path));
  SparseVectors vectors;
  vectors.indptr = values_of<std::int64_t>(tensor_of(file, "indptr", at::kLong, path));
  vectors.tokens = values_of<std::int32_t>(tensor_of(file, "indices", at::kInt, path));
  vectors.weights = values_of<float>(tensor_of(file, "values", at::kFloat, path));
  const auto count = static_cast<std::int64_t>(vectors.tokens.size());
  check_indptr(vectors.indptr, count, path);
  if (vectors.weights.size() != vectors.tokens.size()) user_error(path, ": indices and values differ in length");
  if (shape.size() != 2 || shape[0] != vectors.rows())
    user_error(path, ": shape is not [rows, vocabulary] of its ", vectors.rows(), " rows");
  vectors.vocab_size = shape[1];
  if (file.tensors.contains("id_bytes")) {
    const at::Tensor bytes = tensor_of(file, "id_bytes", at::kByte, path);
    const auto starts = values_of<std::int64_t>(tensor_of(file, "id_indptr", at::kLong, path));
    check_indptr(starts, bytes.numel(), path);
    if (static_cast<std::int64_t>(starts.size()) != vectors.rows() + 1)
      user_error(path, ": the number of ids is not the number of rows");
    const auto* text = reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>());
    for (std::int64_t r = 0; r < vectors.rows(); ++r) vectors.ids.emplace_back(text + starts[r], text + starts[r + 1]);
  } else {
    vectors.ids = numbered_ids(vectors.rows());
  }
  normalize_rows(vectors, path);
  return vectors;
}

void write_safetensors(const std::string& path, const SparseVectors& vectors, const SparseFileOptions&) {
  const std::vector<std::int64_t> shape = {vectors.rows(), vectors.vocab_size};
  std::vector<std::int64_t> starts = {0};
  std::string ids;
  for (const std::string& id : vectors.ids) {
    ids += id;
    starts.push_back(static_cast<std::int64_t>(ids.size()));
  }
  io::save_safetensors(path,
                       {{"indptr", view_of(vectors.indptr, at::kLong)},
                        {"indices", view_of(vectors.tokens, at::kInt)},
                        {"values", view_of(vectors.weights, at::kFloat)},
                        {"shape", view_of(shape, at::kLong)},
                        {"id_bytes", at::from_blob(ids.data(), {static_cast<std::int64_t>(ids.size())}, at::kByte)},
                        {"id_indptr", view_of(starts, at::kLong)}},
                       {{"format", "csr"}});
}

}  // namespace tessera::index
