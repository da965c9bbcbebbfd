#include "tools/embedding_file.h"

#include <filesystem>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/data/image/encode.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera::tools {
namespace {

constexpr std::size_t kMostKeysInHeader = 16 << 20;  // bytes

const char* npy_type(at::ScalarType type) {
  if (type == at::kBool) return "|b1";
  if (type == at::kLong) return "<i8";
  return type == at::kHalf ? "<f2" : "<f4";
}

}  // namespace

EmbeddingFile::EmbeddingFile(std::string path)
    : path_(std::move(path)), folder_(std::filesystem::path(path_).parent_path().string()) {}

void EmbeddingFile::add(const std::string& tensor, const at::Tensor& rows) {
  auto found = tensors_.find(tensor);
  if (found == tensors_.end()) {
    Part part{std::make_unique<io::ScratchFile>(folder_), rows.sizes().vec(), rows.scalar_type()};
    part.shape[0] = 0;
    found = tensors_.emplace(tensor, std::move(part)).first;
  }
  Part& part = found->second;
  TORCH_CHECK(rows.sizes().slice(1) == at::IntArrayRef(part.shape).slice(1) && rows.scalar_type() == part.dtype,
              "EmbeddingFile: rows ", rows.sizes(), " do not continue ", tensor, " ", at::IntArrayRef(part.shape));
  const at::Tensor bytes = rows.contiguous();
  part.file->append(bytes.const_data_ptr(), bytes.nbytes());
  part.shape[0] += rows.size(0);
}

void EmbeddingFile::add_keys(const std::vector<std::string>& keys) {
  if (!keys_) keys_ = std::make_unique<io::ScratchFile>(folder_);
  std::string lines;
  for (const std::string& key : keys) lines += printable(key, key.size()) + "\n";
  keys_->append(lines);
}

std::map<std::string, std::vector<std::int64_t>> EmbeddingFile::shapes() const {
  std::map<std::string, std::vector<std::int64_t>> out;
  for (const auto& [name, part] : tensors_) out[name] = part.shape;
  return out;
}

void EmbeddingFile::commit(const std::map<std::string, std::string>& metadata) {
  if (!path_.ends_with(".npy")) return write_safetensors(metadata);
  if (keys_) write_keys();
  for (const auto& [name, part] : tensors_) write_npy(name, part);
}

at::Tensor EmbeddingFile::whole(const Part& part) const {
  const std::string_view bytes = part.file->bytes();
  if (bytes.empty()) return at::empty(part.shape, part.dtype);
  return at::from_blob(const_cast<char*>(bytes.data()), part.shape, part.dtype);  // the tensor is only read, so const_cast is safe
}

void EmbeddingFile::write_safetensors(std::map<std::string, std::string> metadata) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, part] : tensors_) tensors[name] = whole(part);
  if (keys_ && keys_->size() > kMostKeysInHeader)
    write_keys();
  else if (keys_)
    metadata["images"] = nlohmann::json(split_lines(keys_->bytes())).dump();
  io::save_safetensors(path_, tensors, metadata);
}

void EmbeddingFile::write_npy(const std::string& name, const Part& part) const {
  const std::string kind = name.substr(name.rfind('_') + 1);
  io::AtomicFile file(kind == "embeddings" ? path_ : beside("." + kind + ".npy"));
  file.write(npy_header(npy_type(part.dtype), part.shape));
  file.write(part.file->bytes());
  file.commit();
}

void EmbeddingFile::write_keys() {
  io::write_file(beside(".keys.txt"), keys_->bytes());
}

std::string EmbeddingFile::beside(const std::string& ending) const {
  return std::filesystem::path(path_).replace_extension(ending).string();
}

}  // namespace tessera::tools
