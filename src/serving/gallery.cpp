#include "src/serving/gallery.h"

#include <algorithm>
#include <filesystem>

#include <ATen/ATen.h>

#include "src/base/progress.h"
#include "src/data/formats/stored_embeddings.h"
#include "src/data/image/decode.h"
#include "src/data/image/patches.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/embedding_rows.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/index/index_writer.h"
#include "src/index/sparse_files.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/safetensors.h>

namespace tessera::serving {
namespace {

namespace fs = std::filesystem;

/// A folder that is removed with this object.
struct TemporaryFolder {
  TemporaryFolder() : path((fs::temp_directory_path() / "tessera-serve-XXXXXX").string()) {
    if (mkdtemp(path.data()) == nullptr) user_error(path, ": cannot make this folder for the index: set TMPDIR to another place");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path;
};

}  // namespace

std::unique_ptr<Gallery> Gallery::of_source(std::shared_ptr<const Source> source, const Embedder& embedder, std::int64_t batch_size,
                                            std::int64_t threads) {
  auto out = std::make_unique<Gallery>();
  out->source_ = indexed(source);
  EvaluationReader reader(source, embedder.preprocessing(), batch_size, threads);
  const bool sparse = embedder.token_space() > 0;
  index::SparseVectors vectors;
  vectors.vocab_size = embedder.token_space();
  std::vector<at::Tensor> rows;
  Progress progress("--images", "images");
  for (auto samples = reader.next(); !samples.empty(); samples = reader.next()) {
    std::vector<at::Tensor> pixels;
    std::vector<std::string> numbers;
    for (const EvaluationSample& sample : samples) {
      numbers.push_back(std::to_string(out->keys_.size()));
      out->keys_.push_back(sample.sample.key);
      out->samples_.push_back(sample.index);
      pixels.push_back(sample.pixels);
    }
    const TowerFeatures features = embedder.encode_images(image_batch(pixels, embedder.preprocessing()), ViewNeeds{});
    if (sparse)
      append_rows(vectors, numbers, features);
    else
      rows.push_back(unit_embeddings(features.global).to(at::kFloat));
    progress.show(out->size(), source->size());
  }
  for (const auto& [reason, count] : reader.statistics().skipped)
    log::warning("--images: left out ", with_thousands(count), " images (", reason, ")");
  if (out->keys_.empty()) user_error("--images: there is no image to search");
  if (sparse)
    out->use_sparse(vectors);
  else
    out->rows_ = at::cat(rows);
  return out;
}

std::unique_ptr<Gallery> Gallery::of_file(const std::string& path, const Embedder& embedder, std::int64_t embed_dim,
                                          std::shared_ptr<const Source> images) {
  auto out = std::make_unique<Gallery>();
  const bool sparse = embedder.token_space() > 0;
  if (sparse && fs::is_directory(path)) {
    out->index_.emplace(path);
    for (std::int64_t i = 0; i < out->index_->document_numbers(); ++i) out->keys_.emplace_back(out->index_->id(i));
  } else if (sparse) {
    index::SparseVectors vectors = index::read_sparse_file(path, {});
    out->keys_ = std::exchange(vectors.ids, index::numbered_ids(vectors.rows()));
    out->use_sparse(vectors);
  } else {
    const io::TensorFile file = io::load_safetensors(path);
    const auto found = file.tensors.find("image_embeddings");
    if (found == file.tensors.end() || found->second.dim() != 2)
      user_error("--embeddings ", path, ": has no tensor image_embeddings [N, D]: write the file with tessera-embed --source SOURCE --out FILE");
    out->rows_ = unit_embeddings(found->second.to(at::kFloat));
    out->keys_ = embedding_keys(path, file.metadata, out->rows_.size(0));
    if (out->keys_.empty()) out->keys_ = index::numbered_ids(out->rows_.size(0));
  }
  const std::int64_t width = sparse ? out->index_->vocab_size() : out->rows_.size(1);
  if (width != embed_dim)
    user_error("--embeddings ", path, ": has embeddings of width ", width, ", but those of the model are ", embed_dim,
               " wide: write the file with this model");
  if (images == nullptr) return out;
  out->source_ = indexed(images);
  if (images->size() != out->size())
    user_error("--embeddings ", path, ": has ", with_thousands(out->size()), " images, but --images has ", with_thousands(images->size()),
               ": write the file with tessera-embed --source and the same source");
  for (std::int64_t i = 0; i < out->size(); ++i) out->samples_.push_back(i);
  return out;
}

void Gallery::use_sparse(const index::SparseVectors& vectors) {
  const TemporaryFolder folder;  // the opened index keeps its files
  const std::string place = folder.path + "/index";
  index::build_index(place, vectors, {.unit_length = true});
  index_.emplace(place);
}

Image Gallery::image(std::int64_t item, const Decoding& decoding) const {
  Sample sample = source_->get(samples_.at(static_cast<std::size_t>(item)));
  return take_image(sample, decoding);
}

std::vector<Gallery::Hit> Gallery::search(const at::Tensor& query, std::int64_t k) const {
  const at::Tensor unit = unit_embeddings(query.to(at::kFloat).unsqueeze(0));
  std::vector<Hit> out;
  if (!index_) {
    const at::Tensor scores = rows_.mv(unit[0]), best = metrics::best_first(scores.unsqueeze(0), std::min(k, size()))[0];
    for (std::int64_t i = 0; i < best.size(0); ++i) {
      const auto item = best[i].item<std::int64_t>();
      out.push_back({item, scores[item].item<double>()});
    }
    return out;
  }
  index::SparseVectors row;
  row.vocab_size = index_->vocab_size();
  TowerFeatures features;
  features.global = unit;
  append_rows(row, {"0"}, features);
  for (const index::Hit& hit : index_->search(index::quantize_query(row.tokens_of(0), row.weights_of(0), index_->quantization()), k).best)
    out.push_back({hit.document, hit.score});
  return out;
}

}  // namespace tessera::serving
