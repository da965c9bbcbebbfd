#include <iostream>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/model_inputs.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/inference.h>
#include <tessera/io/safetensors.h>

namespace {

using namespace tessera;

struct Options {
  std::string checkpoint;
  std::vector<std::string> images;
  std::string texts;
  std::string out;
  std::string device = "auto";
  std::int64_t batch_size = 64;
  bool raw = false;
};

at::Tensor unit(const at::Tensor& rows) {
  return rows / rows.norm(2, -1, true).clamp_min(1e-12);
}

at::Tensor embed_images(const Embedder& embedder, const Options& options) {
  std::vector<at::Tensor> rows;
  for (auto begin = options.images.begin(); begin != options.images.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(options.batch_size, options.images.end() - begin);
    std::vector<at::Tensor> pixels;
    for (; begin != end; ++begin) pixels.push_back(tools::read_picture(*begin, embedder.preprocessing()));
    rows.push_back(embedder.images(at::stack(pixels), {}).global);
  }
  return at::cat(rows);
}

int embed(const Options& options) {
  if (options.images.empty() && options.texts.empty())
    user_error("nothing to embed: give --images FILE... or --texts FILE");
  const InferenceModel loaded = load_for_inference(options.checkpoint, options.device);
  const DualEncoderEmbedder embedder(loaded.model, loaded.tokenizer, options.batch_size);
  if (!options.texts.empty() && !embedder.takes_texts()) user_error("--texts: ", loaded.path, " has no text tower");
  std::map<std::string, at::Tensor> tensors;
  if (!options.images.empty()) tensors["image_embeddings"] = embed_images(embedder, options);
  if (!options.texts.empty()) tensors["text_embeddings"] = embedder.texts(tools::read_texts(options.texts), {}).global;
  for (auto& [name, rows] : tensors) rows = options.raw ? rows.contiguous() : unit(rows).contiguous();
  io::save_safetensors(
      options.out, tensors,
      {{"images", nlohmann::json(options.images).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)},
       {"normalized", options.raw ? "false" : "true"}});
  for (const auto& [name, rows] : tensors) {
    std::cout << name << " [" << with_thousands(rows.size(0)) << ", " << rows.size(1) << "]\n";
  }
  std::cout << "written: " << options.out << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Embeds pictures and captions with a model: tensors image_embeddings [N, D] and text_embeddings [M, D]."};
  app.add_option("--checkpoint", options.checkpoint, "model file, checkpoint folder, or run folder")->required();
  app.add_option("--images", options.images, "picture files (JPEG, PNG, WebP)");
  app.add_option("--texts", options.texts, "text file with one caption a line");
  app.add_option("--out", options.out, "safetensors file to write")->required();
  tools::add_default(app, "--device", options.device, "auto, cpu, cuda or cuda:N");
  tools::add_default(app, "--batch-size", options.batch_size, "pictures or captions at a time")
      ->check(tessera::tools::positive_number());
  app.add_flag("--raw", options.raw, "as the model gives them; without it they are scaled to length 1");
  if (const auto code = tessera::tools::parse_arguments(app, argc, argv)) return *code;
  return run_program("tessera-embed", [&] { return embed(options); });
}
