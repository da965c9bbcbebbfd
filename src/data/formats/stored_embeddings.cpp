#include "src/data/formats/stored_embeddings.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/data/formats/regions.h"
#include "src/io/safetensors_header.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

at::Tensor unit_length(const at::Tensor& rows) {
  const at::Tensor values = rows.to(at::kFloat), lengths = values.norm(2, {1}, /*keepdim=*/true);
  return at::where(at::isfinite(lengths), values / lengths.clamp_min(1e-12), 0.0);
}

}  // namespace

std::vector<std::string> embedding_keys(const std::string& path, const std::map<std::string, std::string>& metadata, std::int64_t rows) {
  std::vector<std::string> keys;
  const std::string beside = std::filesystem::path(path).replace_extension(".keys.txt").string();
  if (const auto found = metadata.find("images"); found != metadata.end()) {
    const auto json = nlohmann::json::parse(found->second, nullptr, false);
    if (json.is_array() && std::ranges::all_of(json, [](const auto& key) { return key.is_string(); }))
      keys = json.get<std::vector<std::string>>();
    else
      keys = split_lines(found->second);
  } else if (std::filesystem::exists(beside)) {
    keys = split_lines(io::read_file(beside));
  }
  if (!keys.empty() && std::ssize(keys) != rows)
    user_error(path, ": has ", rows, " image embeddings, but ", keys.size(), " keys: write it again with tessera-embed");
  return keys;
}

StoredEmbeddings::StoredEmbeddings(const std::string& path, const std::string& tensor) : file_(path) {
  find_matrix(path, tensor);
}

void StoredEmbeddings::find_matrix(const std::string& path, const std::string& tensor) {
  const std::string_view bytes = file_.bytes();
  std::map<std::string, std::string> metadata;
  if (path.ends_with(".npy")) {
    try {
      const NpyLayout layout = npy_layout(bytes);
      use(layout.data, layout.rows, layout.columns, layout.type);
    } catch (const SampleError& error) {
      user_error(path, ": ", error.what());
    }
  } else {
    std::uint64_t length = 0;
    if (bytes.size() >= sizeof(length)) std::memcpy(&length, bytes.data(), sizeof(length));
    if (length == 0 || length > bytes.size() - sizeof(length)) user_error(path, ": is neither a .npy nor a .safetensors file, or cut off");
    const std::string_view data = bytes.substr(sizeof(length) + length);
    io::SafetensorsHeader header = io::parse_safetensors_header(std::string(bytes.substr(sizeof(length), length)), data.size(), path);
    const auto found = std::ranges::find(header.entries, tensor, &io::TensorEntry::name);
    std::vector<std::string> names;
    for (const io::TensorEntry& each : header.entries) names.push_back(each.name);
    if (found == header.entries.end()) user_error(path, ": has no tensor ", tensor, "; it has ", join_names(names));
    if (found->shape.size() != 2 || !c10::isFloatingType(found->dtype))
      user_error(path, ": the tensor ", tensor, " is ", io::safetensors_dtype_name(found->dtype), " ", at::IntArrayRef(found->shape),
                 "; expected floats [N, D]");
    use(data.substr(found->begin, found->end - found->begin), found->shape[0], found->shape[1], found->dtype);
    metadata = std::move(header.metadata);
  }
  if (size() == 0 || width() == 0) user_error(path, ": has no embeddings: ", all_.sizes());
  keys_ = embedding_keys(path, metadata, size());
}

void StoredEmbeddings::use(std::string_view data, std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  all_ = at::from_blob(const_cast<char*>(data.data()), {rows, columns}, type);  // the tensor is only read, so const_cast is safe
}

at::Tensor StoredEmbeddings::unit_rows(std::int64_t begin, std::int64_t count) const {
  return unit_length(all_.narrow(0, begin, count));
}

at::Tensor StoredEmbeddings::unit_rows(const at::Tensor& indices) const {
  return unit_length(all_.index_select(0, indices));
}

}  // namespace tessera
