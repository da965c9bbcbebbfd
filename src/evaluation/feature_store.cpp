#include <cstring>
#include <filesystem>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/data/data_fingerprint.h"
#include "src/evaluation/feature_store.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTexts = "texts.safetensors";

std::string compute_digest(const at::Tensor& rows) {
  return hexadecimal(fingerprint({static_cast<const char*>(rows.const_data_ptr()), rows.nbytes()}));
}

/// Returns what is wrong with a file of embeddings; empty if the file is intact and belongs to the model.
std::string find_damage(const io::TensorFile& file, const std::string& key) {
  const auto of = file.tensors.find("of"), rows = file.tensors.find("embeddings");
  const auto model = file.metadata.find("model"), digest = file.metadata.find("digest");
  if (of == file.tensors.end() || rows == file.tensors.end() || model == file.metadata.end() || digest == file.metadata.end())
    return "not a file of cached embeddings";
  if (model->second != key) return "written by another model";
  if (rows->second.dim() != 2 || of->second.scalar_type() != at::kLong || of->second.sizes() != rows->second.sizes().slice(0, 1))
    return "its tensors have unexpected shapes";
  if (digest->second != compute_digest(rows->second)) return "its content does not match its digest";
  return "";
}

}  // namespace

bool EmbeddingTable::contains(std::uint64_t of) const {
  const std::lock_guard lock(mutex_);
  return places_.contains(of);
}

std::int64_t EmbeddingTable::size() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(places_);
}

void EmbeddingTable::insert(const std::vector<std::uint64_t>& of, const at::Tensor& rows) {
  for (std::size_t i = 0; i < of.size(); ++i) places_.try_emplace(of[i], chunks_.size(), static_cast<std::int64_t>(i));
  chunks_.push_back(rows.contiguous());
}

void EmbeddingTable::add(const std::vector<std::uint64_t>& of, const at::Tensor& rows) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(rows.dim() == 2 && rows.size(0) == std::ssize(of), "EmbeddingTable: rows must be [", of.size(), ", D], got ", rows.sizes());
  TORCH_CHECK(chunks_.empty() || (chunks_[0].size(1) == rows.size(1) && chunks_[0].dtype() == rows.dtype()),
              "EmbeddingTable: the rows of one model have one width");
  insert(of, rows);
}

at::Tensor EmbeddingTable::rows(const std::vector<std::uint64_t>& of) const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!chunks_.empty(), "EmbeddingTable: it is empty");
  const at::Tensor out = at::empty({std::ssize(of), chunks_[0].size(1)}, chunks_[0].options());
  const std::size_t bytes = out.size(1) * out.element_size();
  auto* to = static_cast<char*>(out.data_ptr());
  for (const std::uint64_t wanted : of) {
    const Place& place = places_.at(wanted);
    const auto* from = static_cast<const char*>(chunks_[place.chunk].const_data_ptr());
    std::memcpy(to, from + static_cast<std::size_t>(place.row) * bytes, bytes);
    to += bytes;
  }
  return out;
}

at::Tensor EmbeddingTable::rows(const std::vector<std::uint64_t>& of,
                                const std::function<at::Tensor(const std::vector<std::size_t>& missing)>& compute) {
  std::vector<std::size_t> missing;
  std::vector<std::uint64_t> new_ones;
  for (std::size_t i = 0; i < of.size(); ++i) {
    if (contains(of[i])) continue;
    missing.push_back(i);
    new_ones.push_back(of[i]);
  }
  if (!missing.empty()) {
    const at::Tensor computed = compute(missing);
    if (!computed.defined()) return computed;
    add(new_ones, computed);
  }
  return rows(of);
}

void EmbeddingTable::load(const std::string& path, const std::string& key) {
  if (!fs::exists(path)) return;
  std::string damage;
  try {
    const io::TensorFile file = io::load_safetensors(path);
    damage = find_damage(file, key);
    if (damage.empty()) {
      const at::Tensor& of = file.tensors.at("of");
      const auto* begin = of.const_data_ptr<std::int64_t>();
      const std::lock_guard lock(mutex_);
      insert({begin, begin + of.numel()}, file.tensors.at("embeddings"));
      saved_ = std::ssize(places_);
      return;
    }
    damage = path + ": " + damage;
  } catch (const UserError& error) {
    damage = error.what();
  }
  log::warning("--features-cache: computing embeddings again: ", damage);
}

bool EmbeddingTable::save(const std::string& path, const std::string& key) {
  std::vector<std::uint64_t> of;
  {
    const std::lock_guard lock(mutex_);
    if (std::ssize(places_) == saved_) return false;
    for (const auto& [fingerprint, place] : places_) of.push_back(fingerprint);
    saved_ = std::ssize(places_);
  }
  std::sort(of.begin(), of.end());
  const at::Tensor embeddings = rows(of);
  const at::Tensor names = at::empty({std::ssize(of)}, at::kLong);
  std::memcpy(names.data_ptr(), of.data(), of.size() * sizeof(std::uint64_t));
  io::save_safetensors(path, {{"of", names}, {"embeddings", embeddings}}, {{"model", key}, {"digest", compute_digest(embeddings)}});
  return true;
}

FeatureStore::FeatureStore(std::string folder, std::string model) : model_(std::move(model)) {
  if (folder.empty()) return;
  folder_ = (fs::path(folder) / hexadecimal(fingerprint(model_))).string();
  std::error_code problem;
  fs::create_directories(folder_, problem);
  if (problem) user_error("--features-cache ", folder, ": cannot make this folder: ", problem.message());
}

EmbeddingTable& FeatureStore::table(const std::string& name) {
  std::unique_ptr<EmbeddingTable>& found = tables_[name];
  if (found == nullptr) {
    found = std::make_unique<EmbeddingTable>();
    if (!folder_.empty()) found->load(folder_ + "/" + name, model_);
  }
  return *found;
}

EmbeddingTable& FeatureStore::images(const Source& source) {
  return table("pictures-" + hexadecimal(fingerprint(to_json(compute_fingerprints(source)))) + ".safetensors");
}

EmbeddingTable& FeatureStore::texts() {
  return table(kTexts);
}

void FeatureStore::save() {
  if (folder_.empty()) return;
  for (const auto& [name, table] : tables_)
    if (table->save(folder_ + "/" + name, model_))
      log::info("--features-cache: ", with_thousands(table->size()), " embeddings written: ", folder_, "/", name);
}

TowerFeatures CachedEmbedder::encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const {
  if (texts.empty() || needs != ViewNeeds{}) return EmbedderView::encode_texts(texts, needs);
  std::vector<std::uint64_t> of;
  for (const std::string& text : texts) of.push_back(fingerprint(text));
  TowerFeatures out;
  out.global = store_.texts().rows(of, [&](const std::vector<std::size_t>& missing) {
    std::vector<std::string> unknown;
    for (const std::size_t i : missing) unknown.push_back(texts[i]);
    const at::Tensor rows = EmbedderView::encode_texts(unknown, needs).global;
    // Values that are not finite are never cached; the caller reports them.
    return rows.isfinite().all().item<bool>() ? rows : at::Tensor();
  });
  return out.global.defined() ? out : EmbedderView::encode_texts(texts, needs);
}

}  // namespace tessera
