#include <iostream>
#include <memory>

#include "tools/index/command.h"
#include "tools/index/sparse_model.h"
#include "tools/model_inputs.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/index/sparse_files.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

struct EncodeOptions {
  std::string model;
  std::vector<std::string> images;
  std::string texts;
  bool text_free = false;
  std::string out;
  std::string names;
  std::string to;
  double ciff_scale = 100;
  std::string device = "auto";
  std::int64_t batch_size = 64;
};

int encode(const EncodeOptions& options) {
  if (options.images.empty() == options.texts.empty()) user_error("give either --images FILE... or --texts FILE");
  const SparseModel model(options.model, options.device, options.batch_size);
  const index::SparseVectors vectors = options.images.empty()
                                           ? model.encode_texts(read_texts(options.texts), options.text_free)
                                           : model.encode_images(options.images);
  const index::TokenNames names = model.names();
  index::write_sparse_file(options.out, vectors, {options.to, names, options.ciff_scale});
  if (!options.names.empty()) io::write_file(options.names, names.lines());
  std::cout << options.out << ": " << with_thousands(vectors.rows()) << " rows, " << with_thousands(vectors.count())
            << " weights" << std::endl;
  return 0;
}

}  // namespace

Command encode_command(CLI::App& program) {
  const auto options = std::make_shared<EncodeOptions>();
  CLI::App* app = program.add_subcommand(
      "encode", "Encodes pictures or texts with a model, as weights of its vocabulary's tokens.");
  app->footer(
      "Example: tessera-index encode --model runs/stair --images *.jpg --out pictures.safetensors --names vocab.txt");
  app->add_option("--model", options->model, "run, checkpoint folder or model file")->required();
  app->add_option("--images", options->images, "picture files (JPEG, PNG, WebP); their ids are the paths");
  app->add_option("--texts", options->texts, "text file with a text a line; their ids are 0, 1, ...");
  app->add_flag("--text-free", options->text_free, "texts without the text tower: weight 1 for each of their tokens");
  app->add_option("--out", options->out, "file to write")->required();
  app->add_option("--names", options->names, "file for the names of the tokens, for --vocabulary of other commands");
  app->add_option("--to", options->to, "format of the output, where its ending does not say")
      ->check(CLI::IsMember(index::sparse_file_formats()));
  add_default(*app, "--ciff-scale", options->ciff_scale, "of ciff files: their whole numbers are weights times this")
      ->check(positive_number());
  add_default(*app, "--device", options->device, "auto, cpu, cuda or cuda:N");
  add_default(*app, "--batch-size", options->batch_size, "pictures or texts at a time")->check(positive_number());
  return {app, [options] { return encode(*options); }};
}

}  // namespace tessera::tools
