#include <cstring>
#include <filesystem>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/data/features/feature_folder.h"
#include "src/data/features/feature_writer.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string numbered(std::size_t number) {
  std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

// Removes the manifest before the other files, because files without a manifest do not count as features.
void remove_earlier(const std::string& folder) {
  std::error_code ignored;
  fs::remove(folder + "/" + kFeatureManifest, ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kFeatureShardPrefix) && name.find(kFeatureShardSuffix) != std::string::npos)
      fs::remove(entry.path(), ignored);
  }
}

// Returns the values as int64, because safetensors readers do not support unsigned 64-bit numbers.
at::Tensor numbers(const std::vector<std::uint64_t>& values) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::memcpy(out.data_ptr(), values.data(), out.nbytes());
  return out;
}

}  // namespace

struct FeatureWriter::Impl {
  std::string folder;
  FeatureManifest manifest;
  std::int64_t shard_bytes;
  std::vector<FeatureShard> shards;

  // The contents of the shard that is being written.
  std::map<std::string, std::vector<at::Tensor>> rows;
  std::string keys;
  std::vector<std::uint64_t> key_ends, pictures, checksums;

  std::map<std::string, at::Tensor> kept_of(const std::vector<std::string>& names,
                                            const EncodedPictures& encoded) const {
    std::map<std::string, at::Tensor> out;
    const auto keep = [&](const std::string& name, const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const at::Tensor kept = tensor.detach().to(at::kCPU, manifest.scalar_type()).contiguous();
      const at::Tensor finite = kept.isfinite().flatten(1).all(1);
      if (!finite.all().item<bool>())
        user_error("sample ", names[static_cast<std::size_t>(finite.logical_not().nonzero()[0].item<std::int64_t>())],
                   ": its features from the image encoder are not finite as ", manifest.dtype,
                   manifest.dtype == "float16" ? ": set data.features.dtype to bfloat16 or float32" : "");
      out[name] = kept;
    };
    keep("tokens", encoded.tokens);
    keep("class_token", encoded.class_token);
    keep("attention", encoded.attention);
    return out;
  }

  void describe(const std::map<std::string, at::Tensor>& kept) {
    std::vector<FeatureTensor> tensors;
    for (const auto& [name, tensor] : kept) tensors.push_back({name, tensor.sizes().slice(1).vec()});
    if (manifest.tensors.empty()) manifest.tensors = tensors;
    TORCH_CHECK(tensors == manifest.tensors, "FeatureWriter: the tensors differ from those of earlier calls");
  }

  void add(const std::string& key, std::uint64_t picture, const std::map<std::string, at::Tensor>& kept,
           std::int64_t row) {
    std::string bytes;
    for (const auto& [name, tensor] : kept) {
      const at::Tensor one = tensor[row];
      bytes.append(static_cast<const char*>(one.data_ptr()), one.nbytes());
    }
    keys += key;
    key_ends.push_back(keys.size());
    pictures.push_back(picture);
    checksums.push_back(fingerprint(bytes));
    ++manifest.samples;
  }

  void close_shard() {
    if (pictures.empty()) return;
    FeatureShard shard;
    shard.name = kFeatureShardPrefix + numbered(shards.size()) + kFeatureShardSuffix;
    shard.samples = static_cast<std::int64_t>(pictures.size());
    std::map<std::string, at::Tensor> tensors = {
        {"keys", at::from_blob(keys.data(), {static_cast<std::int64_t>(keys.size())}, at::kByte)},
        {"key_ends", numbers(key_ends)},
        {"pictures", numbers(pictures)},
        {"checksums", numbers(checksums)}};
    for (const auto& [name, parts] : rows) tensors[name] = at::cat(parts);
    const std::string path = folder + "/" + shard.name;
    io::save_safetensors(path, tensors);
    shard.bytes = static_cast<std::int64_t>(fs::file_size(path));
    shards.push_back(std::move(shard));
    rows.clear();
    keys.clear();
    key_ends.clear();
    pictures.clear();
    checksums.clear();
  }
};

FeatureWriter::FeatureWriter(const std::string& folder, FeatureManifest manifest, std::int64_t shard_bytes)
    : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  impl_->manifest = std::move(manifest);
  impl_->shard_bytes = shard_bytes;
  remove_earlier(folder);
}

FeatureWriter::~FeatureWriter() = default;

void FeatureWriter::add(const std::vector<std::string>& keys, const std::vector<std::uint64_t>& pictures,
                        const EncodedPictures& encoded) {
  const auto kept = impl_->kept_of(keys, encoded);
  impl_->describe(kept);
  for (std::size_t i = 0; i < keys.size(); ++i) impl_->add(keys[i], pictures[i], kept, static_cast<std::int64_t>(i));
  for (const auto& [name, tensor] : kept) impl_->rows[name].push_back(tensor);
  const std::int64_t bytes = impl_->manifest.bytes() * static_cast<std::int64_t>(impl_->pictures.size());
  if (bytes >= impl_->shard_bytes) impl_->close_shard();
}

FeatureManifest FeatureWriter::finish(const std::map<std::string, std::int64_t>& left_out) {
  impl_->close_shard();
  impl_->manifest.left_out = left_out;
  io::write_file(impl_->folder + "/" + kFeatureManifest, manifest_text(impl_->manifest, impl_->shards));
  return impl_->manifest;
}

}  // namespace tessera
