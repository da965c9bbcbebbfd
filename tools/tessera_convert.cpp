#include <filesystem>
#include <iostream>
#include <map>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tools/checkpoint_arguments.h"
#include "tools/programs.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#ifdef TESSERA_WITH_DATA
#include "src/foreign/published_tokenizer.h"
#include "src/remote/local_copy.h"
#include "src/training/checkpoint/checkpoint.h"
#include "src/training/stages.h"
#include <tessera/data/tokenizers/tokenizer.h>
#endif
#include "src/foreign/architectures.h"
#include "src/foreign/publish.h"
#include "src/foreign/groupvit_checkpoint.h"
#include "src/foreign/open_clip.h"
#include "src/models/parameter_count.h"
#include "src/models/setting_differences.h"
#include <tessera/base/log.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/model_file.h>

namespace tessera::tools {
namespace {

struct ConvertArguments {
  std::string from = "tessera";
  std::string to = "tessera";
  std::string towers = "both";
  CheckpointOptions reading;
  std::string settings;
  std::string vocabulary;
  std::string input;
  std::string output;
  bool list = false;
  std::optional<int> threads;
};

/// Returns the model that --settings describes, without weights: that of a YAML file, a model file or a run. The tokenizer is empty if the
/// settings have none. The config.yaml of a run stands for the run, whose checkpoints have the vocabulary even if its file has moved.
ModelFile described_by(const std::string& path) {
  const std::filesystem::path name(path), folder = name.parent_path();
  const bool of_run = name.filename() == "config.yaml" && std::filesystem::exists(folder / "checkpoints" / "latest");
  if (of_run || path.ends_with(".safetensors") || std::filesystem::is_directory(name)) {
    ModelFile file = load_model_file(find_model_file(of_run ? folder.string() : path));
    file.weights.clear();
    file.extra.clear();
    return file;
  }
  ModelFile file;
  const config::Node tree = config::load_yaml(path);
#ifdef TESSERA_WITH_DATA
  if (tree.find("data") != nullptr) {
    const Config config = load_stages(path, {}, /*without_vocabulary=*/true).back().config;
    file.model = config.model;
    file.tokenizer = config.tokenizer.value_or(config::ModuleSettings{});
    return file;
  }
#endif
  const config::Node *model = tree.find("model"), *tokenizer = tree.find("tokenizer");
  file.model = resolve(config::read<ModelSettings>(model != nullptr ? *model : tree, "model"));
  if (model != nullptr && tokenizer != nullptr && !tokenizer->is_null())
    file.tokenizer = config::Value<config::ModuleSettings>::read(*tokenizer, "tokenizer", {});
  return file;
}

#ifdef TESSERA_WITH_DATA
/// Throws UserError if a text can have more tokens than the text tower takes, or tokens that it lacks.
void check_fits(const Tokenizer& tokenizer, const ModelFile& file) {
  const auto check = [&](const char* key, std::int64_t needed, const char* what) {
    const config::Node* room = file.model.text->encoder.settings.find(key);
    if (room == nullptr || room->is_null() || config::Value<std::int64_t>::read(*room, key, 0) >= needed) return;
    user_error("the tokenizer ", tokenizer.name(), " has ", needed, " ", what, ", but the text tower's ", key, " is ", room->text(),
               ": give the tokenizer and the vocabulary that the model was trained with (--settings RUN has both)");
  };
  check("vocab_size", tokenizer.vocab_size(), "tokens");
  check("context_length", tokenizer.context_length(), "tokens in its longest text");
}

/// Makes the tokenizer of `wanted`. If the vocabulary of the settings is missing, says which options give it.
std::shared_ptr<Tokenizer> made_tokenizer(const config::ModuleSettings& wanted, const std::string& vocabulary, bool is_given) {
  try {
    return tokenizers().make(wanted, "tokenizer", TokenizerContext{vocabulary, ""});
  } catch (const UserError& error) {
    if (is_given) throw;
    user_error(error.what(), "; --vocab FILE names the vocabulary, and --settings RUN takes it from the run's last checkpoint");
  }
}
#endif

/// Stores the tokenizer of `described` (--settings) and the vocabulary of --vocab in the file, if they are given.
void take_given_tokenizer(const ModelFile& described, const std::string& vocabulary, ModelFile& file) {
  if (described.tokenizer.name.empty() && vocabulary.empty()) return;
  if (!file.model.text) {
    if (!vocabulary.empty()) user_error("--vocab: the model has no text tower, and so no tokenizer");
    return;
  }
  if (!described.tokenizer.name.empty()) file.tokenizer = described.tokenizer;
  if (file.tokenizer.name.empty()) file.tokenizer = clip_tokenizer(*file.model.text);
#ifdef TESSERA_WITH_DATA
  if (!vocabulary.empty()) {
    const config::Node known = tokenizers().resolve(file.tokenizer, "tokenizer").settings;
    for (const char* key : {"merges", "vocab", "model"})
      if (known.find(key) != nullptr) file.tokenizer.settings.set(key, config::Node::scalar(vocabulary, {"--vocab", 0}, /*quoted=*/true));
  }
  const auto tokenizer = made_tokenizer(file.tokenizer, vocabulary.empty() ? described.vocabulary : "", !vocabulary.empty());
  check_fits(*tokenizer, file);
  file.vocabulary = tokenizer->vocabulary_bytes();
#else
  file.vocabulary = vocabulary.empty() ? described.vocabulary : io::read_file(vocabulary);
#endif
}

/// Reads the tokenizer of a published model from its folder. If the tokenizer cannot be read, prints the reason.
void take_tokenizer([[maybe_unused]] const ForeignModel& foreign, [[maybe_unused]] const std::string& folder,
                    [[maybe_unused]] ModelFile& file) {
#ifdef TESSERA_WITH_DATA
  if (const std::string reason = take_published_tokenizer(foreign, folder, file); !reason.empty())
    std::cout << "the model cannot read texts, because its tokenizer was not read: " << reason << "\n";
#endif
}

ModelFile of_groupvit(const ConvertArguments& arguments, const ModelFile& given) {
  if (!arguments.reading.architecture.empty())
    user_error("--architecture ", arguments.reading.architecture,
               ": is a name of OpenCLIP: leave it out for GroupViT's released model, or give --settings FILE");
  ModelSettings model = arguments.settings.empty() ? groupvit_model() : given.model;
  if (arguments.reading.image_size) model = with_image_size(model, *arguments.reading.image_size);
  return from_named_tensors(from_groupvit(load_weights(arguments.input, arguments.reading.state), arguments.input), model, arguments.input);
}

ModelFile of_open_clip(const ConvertArguments& arguments, const ModelFile& given) {
  if (!arguments.reading.architecture.empty() && !arguments.settings.empty())
    user_error("give either --architecture NAME or --settings FILE for an OpenCLIP file, not both");
  const std::string weights = find_open_clip_weights(arguments.input);
  if (!arguments.settings.empty()) {
    if (const auto described = usable_description(weights, arguments.reading.state))
      if (const auto differences = setting_differences(resolve(given.model), described->model); !differences.empty())
        log::warning(weights, ": --settings ", arguments.settings, " contradicts the settings that come with the weights: ",
                     join_names(differences));
    return from_open_clip(weights, given.model, arguments.reading.state);
  }
  const ForeignModel foreign = open_clip_settings(weights, arguments.reading);
  ModelFile file = from_open_clip(weights, foreign, arguments.reading.state);
  if (arguments.vocabulary.empty()) take_tokenizer(foreign, std::filesystem::absolute(weights).parent_path().string(), file);
  return file;
}

/// Converts another library's file, or weights without settings. Keeps only the model's tensors, named as in Tessera. Resamples position
/// embeddings to the model's size.
ModelFile from_others(const ConvertArguments& arguments, const ModelFile& given) {
  ModelFile file = arguments.from == "groupvit" ? of_groupvit(arguments, given) : of_open_clip(arguments, given);
  file.published = given.published;
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
bool describes_itself(const ConvertArguments& arguments) {
  const bool plain = arguments.reading.architecture.empty() && arguments.settings.empty() && arguments.vocabulary.empty();
  return plain && arguments.from != "groupvit" && is_published_folder(arguments.input);
}

/// Whether the input contains weights without our settings.
bool is_of_others(const ConvertArguments& arguments) {
  return arguments.from != "tessera" || is_open_clip_checkpoint(arguments.input);
}

/// Reads the model from a path of any supported kind. Also returns the path that messages should name.
std::pair<ModelFile, std::string> read_any(const ConvertArguments& arguments) {
  if (describes_itself(arguments)) return {from_published(arguments.input, arguments.reading), arguments.input};
  ModelFile given = arguments.settings.empty() ? ModelFile{} : described_by(arguments.settings);
  // The weights were trained with OpenCLIP's cleanup of texts, whatever cleanup a recipe with CLIP's tokenizer has.
  if (arguments.from != "tessera" && given.tokenizer.name == "clip-bpe") given.tokenizer = {};
  if (arguments.reading.image_size && !given.model.image.encoder.name.empty())
    given.model = with_image_size(given.model, *arguments.reading.image_size);
  const std::string path = is_of_others(arguments) ? find_open_clip_weights(arguments.input) : find_model_file(arguments.input);
  if (!is_of_others(arguments) && (arguments.reading.image_size || !arguments.reading.state.empty()))
    user_error(path, ": --image-size and --state are for models of other libraries: leave them out");
  ModelFile file = is_of_others(arguments) ? from_others(arguments, given) : load_model_file(path);
  take_given_tokenizer(given, arguments.vocabulary, file);
  return {file, path};
}

std::map<std::string, std::string> tokenizer_files([[maybe_unused]] const ModelFile& file, [[maybe_unused]] const std::string& library) {
#ifdef TESSERA_WITH_DATA
  return published_tokenizer_files(file, library);
#else
  return {};
#endif
}

void write_folder(const ConvertArguments& arguments) {
  const auto [file, origin] = read_any(arguments);
  using enum FolderTowers;
  static const std::map<std::string, FolderTowers> towers = {{"both", both}, {"image", image}, {"text", text}};
  const PublishedFolder written =
      write_published(file, {arguments.to, arguments.output, tokenizer_files(file, arguments.to), origin, towers.at(arguments.towers)});
  print(written.notes);
  std::cout << arguments.output << ": " << (written.what.empty() ? "the folder that the model came from" : written.what)
            << "; reading it back yielded the model's settings and tensors" << std::endl;
}

/// Writes the optimizer's whole state of a checkpoint, whose ranks may each have saved a part, as one file.
void write_state([[maybe_unused]] const std::string& input, [[maybe_unused]] const std::string& output) {
#ifdef TESSERA_WITH_DATA
  if (!output.ends_with(".safetensors")) user_error(output, ": the output is safetensors: name a file that ends in .safetensors");
  const std::string folder = std::filesystem::path(find_model_file(input)).parent_path();
  if (!std::filesystem::exists(folder + "/manifest.json")) user_error(input, ": --to state needs a run or a checkpoint, like RUN/checkpoints/step_0001000");
  const std::map<std::string, at::Tensor> state = whole_state(load_checkpoint(folder));
  io::save_safetensors(output, state);
  std::cout << output << ": the optimizer's state, " << state.size() << " tensors" << std::endl;
#else
  user_error("--to state: this program was built without the trainer");
#endif
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
  check_folder_of("output", output);
}

int run(ConvertArguments arguments) {
  if (arguments.list) {
    for (const std::string& name : architecture_names()) std::cout << name << "\n";
    return 0;
  }
#ifdef TESSERA_WITH_DATA
  arguments.input = remote::local_copy(arguments.input, arguments.to == "state" ? remote::Wanted::everything : remote::Wanted::model);
  arguments.settings = remote::local_copy(arguments.settings);
#endif
  if (std::error_code unknown; !std::filesystem::exists(arguments.input, unknown)) user_error(arguments.input, ": no such file or folder");
  const bool whole_folder = describes_itself(arguments);
  if (!whole_folder && is_foreign_folder(arguments.input))
    user_error(arguments.input, ": describes its own model and tokenizer: leave out --from, --architecture, --settings and --vocab");
  if (arguments.towers != "both" && arguments.to != "transformers")
    user_error("--towers ", arguments.towers, ": only --to transformers writes a tower alone");
  if (arguments.threads) at::set_num_threads(*arguments.threads);
  const at::NoGradGuard guard;
  if (arguments.to == "state") {
    write_state(arguments.input, arguments.output);
    return 0;
  }
  const bool is_file = arguments.output.ends_with(".safetensors");
  if (arguments.to != "tessera" && !(arguments.to == "open_clip" && is_file)) {
    write_folder(arguments);
    return 0;
  }
  const bool theirs = whole_folder || is_of_others(arguments);
  if (!theirs && arguments.to == "tessera" && arguments.settings.empty() && arguments.vocabulary.empty())
    user_error(arguments.input, ": is already a Tessera model: --to open_clip, transformers or timm writes it for another library");
  check_output(input_files(arguments.input, theirs), arguments.output);
  const auto [file, origin] = read_any(arguments);
  if (arguments.to == "tessera")
    save_model_file(arguments.output, file);
  else
    print(write_open_clip_file(file, origin, arguments.output));
  std::cout << arguments.output << ": parameters " << describe(count_parameters(DualEncoder(file.model))) << "; "
            << file.weights.size() << " tensors" << std::endl;
  if (arguments.to == "tessera" && !arguments.settings.empty() && file.model.text && file.vocabulary.empty())
    std::cout << "no tokenizer, because the text tower's vocabulary is not CLIP's: --settings RUN also reads a run's tokenizer" << std::endl;
  return 0;
}

}  // namespace

int convert_main(int argc, char** argv) {
  CLI::App app(
      "Converts models from and to published folders of transformers, timm and OpenCLIP, from and to files of OpenCLIP's and "
      "SPARO's code, and from checkpoints of GroupViT's code. Reads safetensors and PyTorch files (.pt, .pth, .bin) and "
      "writes safetensors.\n"
      "  tessera-convert PUBLISHED_FOLDER OUT.safetensors\n"
      "  tessera-convert --to transformers RUN_OR_FILE_OR_PUBLISHED_FOLDER NEW_FOLDER\n"
      "  tessera-convert --to transformers --towers text RUN_OR_FILE NEW_FOLDER\n"
      "  tessera-convert --from open_clip --architecture ViT-B-32 IN OUT\n"
      "  tessera-convert --from open_clip --settings configs/sparo/laion400m_vitb32.yaml IN OUT\n"
      "  tessera-convert --from groupvit IN OUT\n"
      "  tessera-convert --settings RUN FINE_TUNED.pt OUT.safetensors\n"
      "  tessera-convert --to open_clip RUN_OR_FILE OUT.safetensors\n"
      "  tessera-convert --to state RUN_OR_CHECKPOINT OUT.safetensors");
  ConvertArguments arguments;
  const CLI::IsMember inputs({"tessera", "open_clip", "groupvit"}), outputs({"tessera", "open_clip", "transformers", "timm", "state"});
  app.add_option("input", arguments.input, "model to read: a file, a Tessera run or checkpoint folder, or a published folder");
  app.add_option("output", arguments.output, "file to write, or new folder with --to");
  add_default(app, "--from", arguments.from, "format of the input; not needed for published folders and Tessera's own")
      ->check(inputs);
  add_default(app, "--to", arguments.to, "format of the output; state: the optimizer's whole state of a checkpoint, whose ranks may each have saved a part")->check(outputs);
  add_default(app, "--towers", arguments.towers, "with --to transformers: the towers to write: both, or image or text alone")
      ->check(CLI::IsMember({"both", "image", "text"}));
  add_checkpoint_options(app, arguments.reading);
  app.add_option("--settings", arguments.settings,
                 "the model's settings, instead of --architecture: a YAML file (at the top level or under `model:`), a run or a model file. "
                 "A run and its config.yaml also give the tokenizer");
  app.add_option("--vocab,--merges", arguments.vocabulary,
                 "vocabulary file of the model's tokenizer, which is stored in the model file. Default: that of --settings, else CLIP's");
  app.add_flag("--list", arguments.list, "print the known architectures");
  add_threads(app, arguments.threads);
  const auto check = [&] {
    if (!arguments.list && arguments.output.empty()) throw CLI::RequiredError("input and output");
  };
  if (const auto code = parse_arguments(app, argc, argv, check)) return *code;
  return run_program("tessera-convert", [&] { return run(arguments); });
}

}  // namespace tessera::tools
