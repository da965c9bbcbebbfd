#include <filesystem>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tools/checkpoint_arguments.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#ifdef TESSERA_WITH_DATA
#include <tessera/data/tokenizers/published_tokenizer.h>
#include <tessera/data/tokenizers/tokenizer.h>
#endif
#include <tessera/io/atomic_file.h>
#include <tessera/models/architectures.h>
#include <tessera/models/foreign/publish.h>
#include <tessera/models/groupvit_checkpoint.h>
#include <tessera/models/model_file.h>
#include <tessera/models/open_clip.h>
#include <tessera/models/parameter_count.h>

namespace {

using namespace tessera;

struct Arguments {
  std::string from = "tessera";
  std::string to = "tessera";
  CheckpointOptions reading;
  std::string settings;
  std::string merges;
  std::string input;
  std::string output;
  bool list = false;
  std::optional<int> threads;
};

ModelSettings settings_in_file(const Arguments& arguments) {
  const config::Node tree = config::load_yaml(arguments.settings);
  const config::Node* model = tree.find("model");
  const ModelSettings settings = resolve(config::read<ModelSettings>(model != nullptr ? *model : tree, "model"));
  return arguments.reading.image_size ? with_image_size(settings, *arguments.reading.image_size) : settings;
}

/// Returns the bytes of the vocabulary file, after checking that the model's tokenizer accepts it.
std::string read_merges(const std::string& path, [[maybe_unused]] config::ModuleSettings tokenizer) {
#ifdef TESSERA_WITH_DATA
  tokenizer.settings.set("merges", config::Node::scalar(path));
  try {
    tokenizers().make(tokenizer, "--merges", TokenizerContext{});
  } catch (const UserError& error) {
    user_error("--merges: ", error.what());
  }
#endif
  return io::read_file(path);
}

/// Reads the tokenizer of a published model from its folder. If the tokenizer cannot be read, prints the reason.
void take_tokenizer([[maybe_unused]] const ForeignModel& foreign, [[maybe_unused]] const std::string& folder,
                    [[maybe_unused]] ModelFile& file) {
#ifdef TESSERA_WITH_DATA
  if (const std::string reason = take_published_tokenizer(foreign, folder, file); !reason.empty())
    std::cout << "the model cannot read texts, because its tokenizer was not read: " << reason << "\n";
#endif
}

ModelFile of_groupvit(const Arguments& arguments) {
  if (!arguments.reading.architecture.empty())
    user_error("--architecture ", arguments.reading.architecture,
               ": is a name of OpenCLIP: leave it out for GroupViT's released model, or give --settings FILE");
  const ModelSettings model = arguments.settings.empty() ? groupvit_model() : settings_in_file(arguments);
  return from_named_tensors(from_groupvit(load_weights(arguments.input, arguments.reading.state), arguments.input), model, arguments.input);
}

ModelFile of_open_clip(const Arguments& arguments) {
  if (!arguments.reading.architecture.empty() && !arguments.settings.empty())
    user_error("give either --architecture NAME or --settings FILE for an OpenCLIP file, not both");
  const std::string weights = find_open_clip_weights(arguments.input);
  const CheckpointOptions& reading = arguments.reading;
  if (!arguments.settings.empty()) return from_open_clip(weights, settings_in_file(arguments), reading.state);
  const ForeignModel foreign = open_clip_settings(weights, reading);
  ModelFile file = from_open_clip(weights, foreign, reading.state);
  if (arguments.merges.empty()) take_tokenizer(foreign, std::filesystem::absolute(weights).parent_path().string(), file);
  return file;
}

/// Converts another library's file. Keeps only the model's tensors, named as in Tessera. Resamples position embeddings to the model's size.
ModelFile from_others(const Arguments& arguments) {
  ModelFile file = arguments.from == "groupvit" ? of_groupvit(arguments) : of_open_clip(arguments);
  if (arguments.merges.empty()) return file;
  if (file.model.text) file.tokenizer = clip_tokenizer(*file.model.text);
  file.vocabulary = read_merges(arguments.merges, file.tokenizer);
  return file;
}

void print(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::cout << note << "\n";
}

/// Reads a published folder, including everything needed for inference and for a later conversion back.
ModelFile from_published(const std::string& folder, const CheckpointOptions& options) {
  ModelFile file = load_published_folder(folder, options);
  take_tokenizer(read_published_folder(folder), folder, file);
  return file;
}

/// Whether the input is a published folder. Such a folder contains files that describe the model.
bool describes_itself(const Arguments& arguments) {
  const bool plain = arguments.reading.architecture.empty() && arguments.settings.empty() && arguments.merges.empty();
  return plain && arguments.from != "groupvit" && is_published_folder(arguments.input);
}

/// Reads the model from a path of any supported kind. Also returns the path that messages should name.
std::pair<ModelFile, std::string> read_any(const Arguments& arguments) {
  if (describes_itself(arguments)) return {from_published(arguments.input, arguments.reading), arguments.input};
  if (arguments.from != "tessera" || is_open_clip_checkpoint(arguments.input)) {
    const std::string path = find_open_clip_weights(arguments.input);
    return {from_others(arguments), path};
  }
  const std::string path = find_model_file(arguments.input);
  if (arguments.reading.image_size || !arguments.reading.state.empty())
    user_error(path, ": --image-size and --state are for models of other libraries: leave them out");
  return {load_model_file(path), path};
}

std::map<std::string, std::string> tokenizer_files([[maybe_unused]] const ModelFile& file, [[maybe_unused]] const std::string& library) {
#ifdef TESSERA_WITH_DATA
  return published_tokenizer_files(file, library);
#else
  return {};
#endif
}

void write_folder(const Arguments& arguments) {
  const auto [file, origin] = read_any(arguments);
  const PublishedFolder written =
      write_published(file, {arguments.to, arguments.output, tokenizer_files(file, arguments.to), origin});
  print(written.notes);
  std::cout << arguments.output << ": " << (written.what.empty() ? "the folder that the model came from" : written.what)
            << "; reading it back yielded the model's settings and tensors" << std::endl;
}

/// Returns the files with the weights of the input.
std::vector<std::string> input_files(const std::string& input, bool theirs) {
  if (is_foreign_folder(input)) return foreign_weight_files(input);
  return {theirs ? find_open_clip_weights(input) : find_model_file(input)};
}

/// Checks, before the model is read, that the output is a .safetensors file and not an input file.
void check_output(const std::vector<std::string>& inputs, const std::string& output) {
  std::error_code unknown;
  for (const std::string& input : inputs)
    if (std::filesystem::equivalent(input, output, unknown))
      user_error(output, ": is the input file itself: name another file to write");
  if (!output.ends_with(".safetensors"))
    user_error(output, ": the output is safetensors: name a file that ends in .safetensors");
  tools::check_folder_of("output", output);
}

int run(const Arguments& arguments) {
  if (arguments.list) {
    for (const std::string& name : architecture_names()) std::cout << name << "\n";
    return 0;
  }
  if (std::error_code unknown; !std::filesystem::exists(arguments.input, unknown)) user_error(arguments.input, ": no such file or folder");
  const bool whole_folder = describes_itself(arguments);
  if (!whole_folder && is_foreign_folder(arguments.input))
    user_error(arguments.input, ": describes its own model and tokenizer: leave out --from, --architecture, --settings and --merges");
  if (arguments.threads) at::set_num_threads(*arguments.threads);
  const at::NoGradGuard guard;
  const bool is_file = arguments.output.ends_with(".safetensors");
  if (arguments.to != "tessera" && !(arguments.to == "open_clip" && is_file)) {
    write_folder(arguments);
    return 0;
  }
  const bool theirs = whole_folder || arguments.from != "tessera" || is_open_clip_checkpoint(arguments.input);
  if (!theirs && arguments.to == "tessera")
    user_error(arguments.input, ": is already a Tessera model: --to open_clip, transformers or timm writes it for another library");
  check_output(input_files(arguments.input, theirs), arguments.output);
  const auto [file, origin] = read_any(arguments);
  if (arguments.to == "tessera")
    save_model_file(arguments.output, file);
  else
    print(write_open_clip_file(file, origin, arguments.output));
  std::cout << arguments.output << ": parameters " << describe(count_parameters(DualEncoder(file.model))) << "; "
            << file.weights.size() << " tensors" << std::endl;
  if (arguments.to == "tessera" && file.tokenizer.name == "clip-bpe" && file.vocabulary.empty())
    std::cout << "no vocabulary: programs that read texts will need the tokenizer's file (--merges)" << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Converts models from and to published folders of transformers, timm and OpenCLIP, from and to files of OpenCLIP's and "
      "SPARO's code, and from checkpoints of GroupViT's code. Reads safetensors and PyTorch files (.pt, .pth, .bin) and "
      "writes safetensors.\n"
      "  tessera-convert PUBLISHED_FOLDER OUT.safetensors\n"
      "  tessera-convert --to transformers RUN_OR_FILE_OR_PUBLISHED_FOLDER NEW_FOLDER\n"
      "  tessera-convert --from open_clip --architecture ViT-B-32 IN OUT\n"
      "  tessera-convert --from open_clip --settings configs/sparo/laion400m_vitb32.yaml IN OUT\n"
      "  tessera-convert --from groupvit IN OUT\n"
      "  tessera-convert --to open_clip RUN_OR_FILE OUT.safetensors");
  Arguments arguments;
  const CLI::IsMember inputs({"tessera", "open_clip", "groupvit"}), outputs({"tessera", "open_clip", "transformers", "timm"});
  app.add_option("input", arguments.input, "model to read: a file, a Tessera run or checkpoint folder, or a published folder");
  app.add_option("output", arguments.output, "file to write, or new folder with --to");
  tools::add_default(app, "--from", arguments.from, "format of the input; not needed for published folders and Tessera's own")
      ->check(inputs);
  tools::add_default(app, "--to", arguments.to, "format of the output")->check(outputs);
  tools::add_checkpoint_options(app, arguments.reading);
  app.add_option("--settings", arguments.settings,
                 "YAML file with the model's settings (at the top level or under `model:`), instead of --architecture");
  app.add_option("--merges", arguments.merges, "vocabulary of the tokenizer clip-bpe, which is stored in the model file. Default: CLIP's");
  app.add_flag("--list", arguments.list, "print the known architectures");
  tools::add_threads(app, arguments.threads);
  const auto check = [&] {
    if (!arguments.list && arguments.output.empty()) throw CLI::RequiredError("input and output");
  };
  if (const auto code = tools::parse_arguments(app, argc, argv, check)) return *code;
  return run_program("tessera-convert", [&] { return run(arguments); });
}
