#include "tools/engine_file.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/base/json_numbers.h"
#include "src/base/printable.h"
#include <tessera/base/error.h>

namespace tessera::tools {
namespace {

constexpr std::int64_t kPointsPerLine = 256;  // of qdrant, whose server takes bodies of up to 32 MB

std::string json_text(const std::string& text) { return dump_utf8(nlohmann::json(text)); }

/// Writes a sparse row as {"indices": [...], "values": [...]}.
std::string indexed_text(std::span<const std::int32_t> tokens, std::span<const float> weights) {
  std::string out = R"({"indices":)" + nlohmann::json(tokens).dump() + R"(,"values":)";
  append_numbers(out, weights);
  return out + "}";
}

/// Writes a sparse row as {"token": weight, ...}. Both engines take a dot in a name for a path, and elasticsearch replaces dots by
/// underscores, so this function does.
std::string named_text(std::span<const std::int32_t> tokens, std::span<const float> weights, const index::TokenNames& names) {
  std::string out = "{";
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string name = names.name(tokens[i]);
    std::ranges::replace(name, '.', '_');
    if (i > 0) out += ',';
    out += json_text(name) + ':';
    append_number(out, weights[i]);
  }
  return out + "}";
}

}  // namespace

const std::vector<std::string>& EngineFile::engines() {
  static const std::vector<std::string> names = {"opensearch", "elasticsearch", "qdrant", "milvus", "faiss"};
  return names;
}

EngineFile::EngineFile(const std::string& engine, std::string path, bool sparse) : engine_(engine), path_(std::move(path)), sparse_(sparse) {
  if (engine_ != "faiss") {
    file_.emplace(path_);
    if (engine_ == "milvus") file_->write("[\n");
    return;
  }
  if (sparse_) user_error("--to faiss: faiss has no index for sparse embeddings: give another engine, or leave out --sparse");
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  vectors_ = std::make_unique<io::ScratchFile>(folder);
  keys_ = std::make_unique<io::ScratchFile>(folder);
}

void EngineFile::add(const std::vector<std::string>& keys, const std::vector<std::string>& texts, const at::Tensor& rows) {
  const at::Tensor values = rows.contiguous();
  width_ = rows.size(1);
  const float* row = values.const_data_ptr<float>();
  if (vectors_) {
    vectors_->append(row, values.nbytes());
    for (const std::string& key : keys) keys_->append(printable(key, key.size()) + "\n");
    rows_ += std::ssize(keys);
    return;
  }
  for (std::size_t i = 0; i < keys.size(); ++i, row += width_) {
    std::string vector;
    append_numbers(vector, {row, static_cast<std::size_t>(width_)});
    add_document(keys[i], texts.empty() ? nullptr : &texts[i], vector);
  }
}

void EngineFile::add(const index::SparseVectors& rows, const std::vector<std::string>& texts, const index::TokenNames& names) {
  const bool by_name = engine_ == "opensearch" || engine_ == "elasticsearch";
  for (std::int64_t i = 0; i < rows.rows(); ++i) {
    const auto r = static_cast<std::size_t>(i);
    add_document(rows.ids[r], texts.empty() ? nullptr : &texts[r],
                 by_name ? named_text(rows.tokens_of(i), rows.weights_of(i), names) : indexed_text(rows.tokens_of(i), rows.weights_of(i)));
  }
}

void EngineFile::add_document(const std::string& key, const std::string* text, const std::string& vector) {
  const std::string fields = R"("key":)" + json_text(key) + (text == nullptr ? "" : R"(,"text":)" + json_text(*text));
  const std::string named = std::string(sparse_ ? R"("tokens":)" : R"("embedding":)") + vector;
  const std::string number = std::to_string(rows_);
  if (engine_ == "qdrant") {
    pending_ += (pending_.empty() ? "" : ",") + (R"({"id":)" + number) + R"(,"vector":)" + (sparse_ ? "{" + named + "}" : vector) +
                R"(,"payload":{)" + fields + "}}";
    if (++pending_rows_ == kPointsPerLine) flush();
  } else if (engine_ == "milvus") {
    file_->write((rows_ == 0 ? "" : ",\n") + (R"({"id":)" + number) + "," + fields + "," + named + "}");
  } else {
    file_->write(R"({"index":{"_id":)" + json_text(key) + "}}\n{" + fields + "," + named + "}\n");
  }
  ++rows_;
}

void EngineFile::flush() {
  if (pending_.empty()) return;
  file_->write(R"({"points":[)" + std::exchange(pending_, {}) + "]}\n");
  pending_rows_ = 0;
}

std::string EngineFile::beside(const std::string& ending) const { return std::filesystem::path(path_).replace_extension(ending).string(); }

/// Returns the body that makes the index or the collection; empty if the engine has none.
std::string EngineFile::settings() const {
  nlohmann::json fields = {{"key", {{"type", "keyword"}}}, {"text", {{"type", "text"}}}};
  if (engine_ == "opensearch") {
    if (sparse_)
      fields["tokens"] = {{"type", "rank_features"}};
    else
      fields["embedding"] = {{"type", "knn_vector"}, {"dimension", width_}, {"space_type", "innerproduct"}};
    return nlohmann::json{{"settings", {{"index", {{"knn", !sparse_}}}}}, {"mappings", {{"properties", fields}}}}.dump(2);
  }
  if (engine_ == "elasticsearch") {
    if (sparse_)
      fields["tokens"] = {{"type", "sparse_vector"}};
    else
      fields["embedding"] = {{"type", "dense_vector"}, {"dims", width_}, {"similarity", "cosine"}};
    return nlohmann::json{{"mappings", {{"properties", fields}}}}.dump(2);
  }
  if (sparse_) return R"({"sparse_vectors": {"tokens": {}}})";
  return nlohmann::json{{"vectors", {{"size", width_}, {"distance", "Cosine"}}}}.dump(2);
}

void EngineFile::commit() {
  if (vectors_) return write_faiss();
  flush();
  if (engine_ == "milvus") file_->write("\n]\n");
  file_->commit();
  if (engine_ == "qdrant") io::write_file(beside(".collection.json"), settings() + "\n");
  if (engine_ == "opensearch" || engine_ == "elasticsearch") io::write_file(beside(".index.json"), settings() + "\n");
}

/// Writes the layout of faiss::write_index for an IndexFlatIP: "IxFI", the width (int32), the number of rows (int64), two unused int64,
/// whether the index is trained (uint8), the metric (int32; 0: inner product), and the number of floats (uint64) before the floats.
void EngineFile::write_faiss() {
  io::write_file(beside(".keys.txt"), keys_->bytes());
  io::AtomicFile file(path_);
  const auto write = [&](auto value) { file.write(&value, sizeof value); };
  file.write("IxFI");
  write(static_cast<std::int32_t>(width_));
  write(rows_);
  for (int i = 0; i < 2; ++i) write(std::int64_t{1} << 20);
  write(std::uint8_t{1});
  write(std::int32_t{0});
  write(static_cast<std::uint64_t>(rows_ * width_));
  file.write(vectors_->bytes());
  file.commit();
}

}  // namespace tessera::tools
