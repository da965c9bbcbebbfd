#include <filesystem>
#include <iomanip>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/embedding_rows.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/printable.h>
#include <tessera/base/text.h>
#include <tessera/data/image/encode.h>
#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/multi_hot_embedder.h>
#include <tessera/evaluation/token_space.h>
#include <tessera/index/sparse_files.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace {

using namespace tessera;

struct Options {
  std::string checkpoint;
  std::vector<std::string> images;
  std::string data;
  std::string texts;
  std::string out;
  std::string sparse;
  std::string vocabulary;
  std::string device = "auto";
  std::int64_t batch_size = 64;
  std::optional<int> threads;
  std::int64_t top = 0;
  bool raw = false;
  bool text_encoder_free = false;

  bool writes_npy() const { return out.ends_with(".npy"); }
  bool has_pictures() const { return !images.empty() || !data.empty(); }
};

at::Tensor unit(const at::Tensor& rows) {
  return rows / rows.norm(2, -1, true).clamp_min(1e-12);
}

/// Pictures of a source, called by their keys; those that cannot be read are left out, with a warning.
void embed_source(const Embedder& embedder, const Options& options, const tools::Rows& rows) {
  const auto choice = sources().resolve(source_from_text(options.data, "--data"), "--data");
  EvaluationReader reader(sources().make(choice, "--data"), embedder.preprocessing(), options.batch_size,
                          options.threads.value_or(at::get_num_threads()));
  for (auto samples = reader.next(); !samples.empty(); samples = reader.next()) {
    std::vector<std::string> keys;
    std::vector<at::Tensor> pixels;
    for (const EvaluationSample& sample : samples) {
      keys.push_back(sample.sample.key);
      pixels.push_back(sample.pixels);
    }
    rows(keys, embedder.images(at::stack(pixels), {}).global);
  }
  for (const auto& [reason, count] : reader.statistics().skipped)
    log::warning("--data ", options.data, ": left out ", with_thousands(count), " samples (", reason, ")");
}

void embed_pictures(const Embedder& embedder, const Options& options, const tools::Rows& rows) {
  if (options.data.empty())
    tools::embed_files(embedder, options.images, options.batch_size, rows);
  else
    embed_source(embedder, options, rows);
}

void embed_captions(const Embedder& embedder, const Options& options, const tools::Rows& rows) {
  tools::embed_texts(embedder, tools::read_texts(options.texts), options.batch_size, rows);
}

/// The rows as they come, joined, and what they are called.
std::pair<at::Tensor, std::vector<std::string>> joined_rows(const std::function<void(const tools::Rows&)>& produce) {
  std::vector<at::Tensor> batches;
  std::vector<std::string> names;
  produce([&](const std::vector<std::string>& some, const at::Tensor& embeddings) {
    names.insert(names.end(), some.begin(), some.end());
    batches.push_back(embeddings);
  });
  return {batches.empty() ? at::empty({0, 0}) : at::cat(batches), names};
}

/// NAME.npy, and NAME.keys.txt with what its rows are called, a line each.
void write_npy(const std::string& path, const at::Tensor& embeddings, const std::vector<std::string>& keys) {
  const at::Tensor rows = embeddings.to(at::kFloat).contiguous();
  const float* const values = rows.const_data_ptr<float>();
  io::write_file(path,
                 encode_npy(std::vector<float>(values, values + rows.numel()), embeddings.size(0), embeddings.size(1)));
  if (keys.empty()) return;
  std::string lines;
  for (const std::string& key : keys) lines += printable(key, key.size()) + "\n";
  io::write_file(std::filesystem::path(path).replace_extension(".keys.txt").string(), lines);
}

void write_dense(const Embedder& embedder, const Options& options) {
  std::map<std::string, at::Tensor> tensors;
  std::vector<std::string> pictures;
  if (options.has_pictures())
    std::tie(tensors["image_embeddings"], pictures) =
        joined_rows([&](const tools::Rows& rows) { embed_pictures(embedder, options, rows); });
  if (!options.texts.empty())
    tensors["text_embeddings"] =
        joined_rows([&](const tools::Rows& rows) { embed_captions(embedder, options, rows); }).first;
  for (auto& [name, rows] : tensors) rows = options.raw ? rows.contiguous() : unit(rows).contiguous();
  if (options.writes_npy())
    write_npy(options.out, tensors.begin()->second, pictures);
  else
    io::save_safetensors(
        options.out, tensors,
        {{"images", nlohmann::json(pictures).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)},
         {"normalized", options.raw ? "false" : "true"}});
  for (const auto& [name, rows] : tensors)
    std::cout << name << " [" << with_thousands(rows.size(0)) << ", " << rows.size(1) << "]\n";
  std::cout << "written: " << options.out << std::endl;
}

void write_sparse(const Embedder& embedder, const Options& options) {
  index::SparseVectors vectors;
  vectors.vocab_size = embedder.token_space();
  const tools::Rows append = [&](const std::vector<std::string>& names, const at::Tensor& embeddings) {
    tools::append_rows(vectors, names, embeddings, options.top);
  };
  if (options.has_pictures())
    embed_pictures(embedder, options, append);
  else
    embed_captions(embedder, options, append);
  if (!options.raw) index::scale_to_unit_length(vectors);
  index::SparseFileOptions format;
  format.names = tools::token_names(embedder, "the model's vocabulary");
  index::write_sparse_file(options.sparse, vectors, format);
  const double active =
      static_cast<double>(vectors.count()) / static_cast<double>(std::max<std::int64_t>(1, vectors.rows()));
  std::cout << with_thousands(vectors.rows()) << " rows of " << with_thousands(vectors.vocab_size) << " tokens, "
            << std::setprecision(4) << active << " active in each\nwritten: " << options.sparse << std::endl;
}

void check(const Options& options) {
  if (!options.has_pictures() && options.texts.empty())
    user_error("nothing to embed: give --images FILE..., --data SOURCE or --texts FILE");
  if (!options.images.empty() && !options.data.empty()) user_error("give --images or --data, not both");
  if (options.text_encoder_free && options.sparse.empty())
    user_error("--text-encoder-free makes sparse embeddings of texts: give --sparse FILE");
  if (options.out.empty() && options.sparse.empty())
    user_error("nowhere to write to: give --out FILE, or --sparse FILE for embeddings over a vocabulary");
  if (options.writes_npy() && options.has_pictures() && !options.texts.empty())
    user_error("--out ", options.out,
               ": a .npy file holds pictures or texts: name a .safetensors file, or run the program once for each");
  if (!options.sparse.empty() && options.has_pictures() && !options.texts.empty())
    user_error("--sparse: a file holds pictures or texts: run the program once for each");
}

int embed(const Options& options) {
  check(options);
  if (options.threads) at::set_num_threads(*options.threads);
  const InferenceModel loaded = load_for_inference(options.checkpoint, options.device);
  const DualEncoderEmbedder embedder(loaded.model, loaded.tokenizer, options.batch_size);
  if (!options.texts.empty() && !embedder.takes_texts()) user_error("--texts: ", loaded.path, " has no text tower");
  if (!options.sparse.empty()) require_token_space(embedder, "--sparse");
  if (!options.vocabulary.empty()) {
    require_token_space(embedder, "--vocabulary");
    io::write_file(options.vocabulary, tools::token_names(embedder, "--vocabulary").lines());
  }
  if (!options.out.empty()) write_dense(embedder, options);
  if (options.text_encoder_free)
    write_sparse(MultiHotEmbedder(embedder, "--text-encoder-free"), options);
  else if (!options.sparse.empty())
    write_sparse(embedder, options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Embeds pictures and captions with a model: tensors image_embeddings [N, D] and text_embeddings [M, D]."};
  app.add_option("--checkpoint", options.checkpoint, "model file, checkpoint folder, or run folder")->required();
  app.add_option("--images", options.images, "picture files (JPEG, PNG, WebP)");
  app.add_option(
      "--source,--data", options.data,
      "pictures of a source: shapes, a folder, a .tar or .csv file, or {name: SOURCE, ...}; those that cannot be "
      "read are left out and counted");
  app.add_option("--texts", options.texts, "text file with one caption a line");
  app.add_option("--out", options.out,
                 "file to write: .safetensors, or .npy with the pictures' keys in NAME.keys.txt beside it");
  app.add_option(
      "--sparse", options.sparse,
      "file to write of embeddings over a vocabulary (STAIR), the format by its ending: .safetensors (CSR), .csr, "
      ".jsonl, .ciff, or .txt for people; tessera-index builds an index of it");
  app.add_flag("--text-encoder-free", options.text_encoder_free,
               "--sparse without the text tower: a text is 1 at each of its tokens");
  app.add_option("--vocabulary", options.vocabulary,
                 "text file to write of what the tokens are called, one a line, for tessera-index --vocabulary");
  tools::add_default(app, "--top", options.top,
                     "tokens that --sparse keeps of each picture or text, the greatest; 0: all");
  tools::add_default(app, "--device", options.device, "auto, cpu, cuda or cuda:N");
  tools::add_default(app, "--batch-size", options.batch_size, "pictures or captions at a time")
      ->check(tessera::tools::positive_number());
  tools::add_threads(app, options.threads);
  app.add_flag("--raw", options.raw, "as the model gives them; without it they are scaled to length 1");
  if (const auto code = tessera::tools::parse_arguments(app, argc, argv)) return *code;
  return run_program("tessera-embed", [&] { return embed(options); });
}
