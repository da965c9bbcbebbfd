#include <iomanip>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "src/data/image/patches.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/embedder_views.h"
#include "src/evaluation/embedding_rows.h"
#include "src/evaluation/token_space.h"
#include "src/index/sparse_files.h"
#include "src/io/stand_in.h"
#include "tools/checkpoint_arguments.h"
#include "tools/precision_argument.h"
#include "tools/embedding_file.h"
#include "tools/engine_file.h"
#include "tools/programs.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

struct EmbedOptions {
  std::string checkpoint;
  CheckpointOptions reading;
  std::vector<std::string> images;
  std::string data;
  std::string texts;
  std::string out;
  std::string sparse;
  std::string engine;
  std::string vocabulary;
  std::string device = "auto";
  std::int64_t batch_size = 64;
  std::optional<int> threads;
  std::string precision = "float32";
  std::int64_t top = 0;
  bool raw = false;
  bool dense = false;
  std::string type = "float32";
  bool text_encoder_free = false;

  bool writes_npy() const { return out.ends_with(".npy"); }
  bool has_images() const { return !images.empty() || !data.empty(); }
};

/// Embeds the images of a source; rows are named by the samples' keys. Skips unreadable images with a warning.
void embed_source(const Embedder& embedder, const EmbedOptions& options, const ViewNeeds& needs, const Rows& rows) {
  constexpr const char* kOption = "--source";
  const auto choice = sources().resolve(source_from_text(options.data, kOption), kOption);
  EvaluationReader reader(sources().make(choice, kOption), embedder.preprocessing(), options.batch_size,
                          options.threads.value_or(at::get_num_threads()));
  for (auto samples = reader.next(); !samples.empty(); samples = reader.next()) {
    std::vector<std::string> keys;
    std::vector<at::Tensor> pixels;
    for (const EvaluationSample& sample : samples) {
      keys.push_back(sample.sample.key);
      pixels.push_back(sample.pixels);
    }
    rows(keys, embedder.encode_images(image_batch(pixels, embedder.preprocessing()), needs));
  }
  for (const auto& [reason, count] : reader.statistics().skipped)
    log::warning(kOption, " ", options.data, ": left out ", with_thousands(count), " samples (", reason, ")");
}

/// Embeds image files; rows are named by the paths. Skips unreadable files with a warning for each.
void embed_image_files(const Embedder& embedder, const EmbedOptions& options, const ViewNeeds& needs, const Rows& rows) {
  std::size_t left_out = 0;
  embed_files(embedder, options.images, {options.batch_size, needs}, rows, [&](const std::string& message) {
    ++left_out;
    log::warning("left out: ", message);
  });
  if (left_out == 0) return;
  const std::string count = concat(with_thousands(static_cast<std::int64_t>(left_out)), " of ",
                                   with_thousands(static_cast<std::int64_t>(options.images.size())), " images");
  if (left_out == options.images.size()) user_error("--images: nothing to embed: left out ", count);
  log::warning("--images: left out ", count);
}

void embed_images(const Embedder& embedder, const EmbedOptions& options, const ViewNeeds& needs, const Rows& rows) {
  if (options.data.empty())
    embed_image_files(embedder, options, needs, rows);
  else
    embed_source(embedder, options, needs, rows);
}

void embed_captions(const Embedder& embedder, const EmbedOptions& options, const ViewNeeds& needs, const Rows& rows) {
  embed_texts(embedder, split_lines(io::read_data_file(options.texts)), {options.batch_size, needs}, rows);
}

/// Converts embeddings to the form that is written: normalized (without --raw), and in the type that --type names.
at::Tensor for_file(const at::Tensor& embeddings, const EmbedOptions& options) {
  const at::Tensor rows = options.raw ? embeddings : unit_embeddings(embeddings);
  if (options.type == "float32") return rows.to(at::kFloat);
  const at::Tensor halves = rows.to(at::kHalf);
  if (!at::isfinite(halves).all().item<bool>() && at::isfinite(rows).all().item<bool>())
    user_error("--type float16: an embedding has a number above 65,504: leave out --raw, or use --type float32");
  return halves;
}

void add_dense(EmbeddingFile& file, const TowerFeatures& features, const std::string& name,
               const EmbedOptions& options) {
  if (!features.dense.defined()) user_error("--dense: this model has no patch or token embeddings");
  file.add(name, for_file(features.dense, options));
}

void write_dense(const Embedder& embedder, const EmbedOptions& options) {
  const ViewNeeds needs{.dense = options.dense};
  EmbeddingFile file(options.out);
  if (options.has_images())
    embed_images(embedder, options, needs, [&](const std::vector<std::string>& keys, const TowerFeatures& features) {
      file.add("image_embeddings", for_file(features.global, options));
      if (options.dense) add_dense(file, features, "image_patches", options);
      if (options.dense && features.grids.defined()) file.add("image_grids", features.grids);
      file.add_keys(keys);
    });
  if (!options.texts.empty())
    embed_captions(embedder, options, needs, [&](const std::vector<std::string>&, const TowerFeatures& features) {
      file.add("text_embeddings", for_file(features.global, options));
      if (!options.dense) return;
      add_dense(file, features, "text_tokens", options);
      file.add("text_mask", features.mask.defined() ? features.mask
                                                    : at::ones(features.dense.sizes().slice(0, 2), at::kBool));
    });
  if (file.empty()) user_error("nothing to embed: ", options.has_images() ? options.data : options.texts, " is empty");
  file.commit({{"normalized", options.raw ? "false" : "true"}});
  for (const auto& [name, shape] : file.shapes()) {
    std::cout << name << " [" << with_thousands(shape[0]);
    for (std::size_t i = 1; i < shape.size(); ++i) std::cout << ", " << shape[i];
    std::cout << "]\n";
  }
  std::cout << "written: " << options.out << std::endl;
}

void write_sparse(const Embedder& embedder, const EmbedOptions& options) {
  index::SparseVectors vectors;
  vectors.vocab_size = embedder.token_space();
  const Rows append = [&](const std::vector<std::string>& names, const TowerFeatures& features) {
    append_rows(vectors, names, features, options.top);
  };
  if (options.has_images())
    embed_images(embedder, options, {}, append);
  else
    embed_captions(embedder, options, {}, append);
  if (!options.raw) index::scale_to_unit_length(vectors);
  index::SparseFileOptions format;
  format.names = token_names(embedder, "the model's vocabulary");
  index::write_sparse_file(options.sparse, vectors, format);
  const double active =
      static_cast<double>(vectors.count()) / static_cast<double>(std::max<std::int64_t>(1, vectors.rows()));
  std::cout << with_thousands(vectors.rows()) << " rows of " << with_thousands(vectors.vocab_size) << " tokens, "
            << std::setprecision(4) << active << " active per row\nwritten: " << options.sparse << std::endl;
}

/// Writes the file of a search engine (--to): --sparse names it if its embeddings are sparse, --out otherwise.
void write_for_engine(const Embedder& embedder, const EmbedOptions& options) {
  const bool sparse = !options.sparse.empty();
  const std::string& path = sparse ? options.sparse : options.out;
  EngineFile file(options.engine, path, sparse);
  const index::TokenNames names = sparse ? token_names(embedder, "the model's vocabulary") : index::TokenNames();
  const std::vector<std::string> lines =
      options.texts.empty() ? std::vector<std::string>{} : split_lines(io::read_data_file(options.texts));
  std::size_t done = 0;
  const Rows append = [&](const std::vector<std::string>& keys, const TowerFeatures& features) {
    const auto first = lines.begin() + static_cast<std::ptrdiff_t>(lines.empty() ? 0 : done);
    const std::vector<std::string> texts(first, lines.empty() ? first : first + std::ssize(keys));
    done += keys.size();
    if (!sparse) return file.add(keys, texts, unit_embeddings(features.global).to(at::kFloat));
    index::SparseVectors vectors;
    vectors.vocab_size = embedder.token_space();
    append_rows(vectors, keys, features, options.top);
    if (!options.raw) index::scale_to_unit_length(vectors);
    file.add(vectors, texts, names);
  };
  if (options.has_images())
    embed_images(embedder, options, {}, append);
  else
    embed_captions(embedder, options, {}, append);
  if (file.rows() == 0) user_error("nothing to embed: ", options.has_images() ? options.data : options.texts, " is empty");
  file.commit();
  std::cout << with_thousands(file.rows()) << " embeddings for " << options.engine << "\nwritten: " << path << std::endl;
}

void check_engine(const EmbedOptions& options) {
  if (options.out.empty() == options.sparse.empty()) user_error("--to ", options.engine, ": give --out FILE or, for sparse embeddings, --sparse FILE");
  if (options.has_images() && !options.texts.empty()) user_error("--to: a file holds either images or texts: run the program once for each");
  if (options.dense || options.type != "float32" || (options.raw && options.sparse.empty()))
    user_error("--to ", options.engine, ": writes embeddings of length 1 in float32: leave out --dense, --type and --raw");
}

void check_options(const EmbedOptions& options) {
  if (!options.has_images() && options.texts.empty())
    user_error("nothing to embed: give --images FILE..., --source SOURCE or --texts FILE");
  if (!options.images.empty() && !options.data.empty()) user_error("give --images or --source, not both");
  if (options.text_encoder_free && options.sparse.empty())
    user_error("--text-encoder-free needs --sparse FILE: it makes sparse embeddings of texts");
  if (options.out.empty() && options.sparse.empty())
    user_error("nowhere to write to: give --out FILE, or --sparse FILE for embeddings over a vocabulary");
  if (!options.engine.empty()) return check_engine(options);
  if (options.dense && options.out.empty()) user_error("--dense: give --out FILE");
  if (!options.out.empty() && !options.writes_npy() && !options.out.ends_with(".safetensors"))
    user_error("--out ", options.out, ": the ending decides the format: name a file that ends in .safetensors or .npy");
  if (options.writes_npy() && options.has_images() && !options.texts.empty())
    user_error("--out ", options.out,
               ": a .npy file holds either images or texts: name a .safetensors file, or run the program once for each");
  if (!options.sparse.empty() && options.has_images() && !options.texts.empty())
    user_error("--sparse: a file holds either images or texts: run the program once for each");
}

int embed(const EmbedOptions& options) {
  check_options(options);
  if (options.threads) at::set_num_threads(*options.threads);
  const InferenceModel loaded = load_for_inference(options.checkpoint, options.device, options.reading);
  const DualEncoderEmbedder embedder(loaded.model, loaded.tokenizer, options.batch_size, precision_type(options.precision));
  if (!options.texts.empty() && !embedder.takes_texts()) user_error("--texts: ", loaded.path, " has no text tower");
  if (!options.sparse.empty()) require_token_space(embedder, "--sparse");
  if (!options.vocabulary.empty()) {
    require_token_space(embedder, "--vocabulary");
    io::write_file(options.vocabulary, token_names(embedder, "--vocabulary").lines());
  }
  std::optional<MultiHotEmbedder> by_tokens;
  if (options.text_encoder_free) by_tokens.emplace(embedder, "--text-encoder-free");
  const Embedder& chosen = by_tokens ? *by_tokens : static_cast<const Embedder&>(embedder);
  if (!options.engine.empty()) {
    write_for_engine(chosen, options);
  } else {
    if (!options.out.empty()) write_dense(embedder, options);
    if (!options.sparse.empty()) write_sparse(chosen, options);
  }
  embedder.tell_of_cut_texts();
  return 0;
}

}  // namespace

int embed_main(int argc, char** argv) {
  EmbedOptions options;
  CLI::App app{
      "Embeds images and captions with a model and writes the tensors image_embeddings [N, D] and text_embeddings [M, D]."};
  app.add_option("--checkpoint", options.checkpoint,
                 "model file, checkpoint folder, run folder, or OpenCLIP checkpoint (file or folder)")
      ->required();
  add_checkpoint_options(app, options.reading);
  app.add_option("--images", options.images,
                 "image files (JPEG, PNG, WebP); unreadable files are reported and skipped");
  app.add_option("--source", options.data,
                 "images of a source: shapes, a folder, a .tar or .csv file (columns filepath and title), or "
                 "{name: SOURCE, ...}; unreadable images are skipped and counted, and the first ones are named");
  app.add_option("--texts", options.texts, "text file with one caption per line");
  app.add_option("--out", options.out,
                 "file to write: .safetensors, or .npy with the images' keys in NAME.keys.txt next to it");
  app.add_flag("--dense", options.dense,
               "with --out: also write the embeddings of patches and tokens, image_patches [N, P, D], text_tokens [M, L, D] and "
               "text_mask [M, L] (true: a token, not padding); if images keep their shapes (naflex), also image_grids [N, 2], the rows "
               "and columns of patches; next to X.npy: X.patches.npy, X.tokens.npy, X.mask.npy and X.grids.npy");
  add_default(app, "--type", options.type, "type of the numbers in --out: float32 or float16")
      ->check(CLI::IsMember({"float32", "float16"}));
  app.add_option(
      "--sparse", options.sparse,
      "file to write with embeddings over a vocabulary (STAIR), from which tessera-index builds an index; its ending decides "
      "the format: .safetensors (CSR), .csr, .jsonl, .ciff, or .txt for people");
  app.add_option("--to", options.engine,
                 "write --out or --sparse as a search engine reads it: opensearch, elasticsearch, qdrant, milvus or faiss (docs/serving.md)")
      ->check(CLI::IsMember(EngineFile::engines()));
  app.add_flag("--text-encoder-free", options.text_encoder_free,
               "with --sparse: embed a text without the text tower, as 1 at each of its tokens");
  app.add_option("--vocabulary", options.vocabulary,
                 "text file to write with one token name per line, for tessera-index --vocabulary");
  add_default(app, "--top", options.top,
                     "number of tokens that --sparse keeps per image or text, those with the largest weights; 0: all");
  add_default(app, "--device", options.device, "auto, cpu, cuda or cuda:N");
  add_default(app, "--batch-size", options.batch_size, "images or captions per batch")
      ->check(positive_number());
  add_threads(app, options.threads);
  add_precision(app, options.precision);
  app.add_flag("--raw", options.raw, "write embeddings as the model outputs them, not scaled to length 1");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  return run_program("tessera-embed", [&] { return embed(options); });
}

}  // namespace tessera::tools
